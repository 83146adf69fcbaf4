#include "compute/cpu/token_ops.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/sums.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace flux2::cpu {
namespace {

template <typename T>
auto* floats_at(T* x, int64_t i, int axis, int64_t j = 0) {
    const int64_t offset =
        i * static_cast<int64_t>(x->nb[axis]) + j * static_cast<int64_t>(x->nb[1]);
    return static_cast<float*>(x->data) + offset / static_cast<int64_t>(sizeof(float));
}

const float* row_of(const ggml_tensor* x, int64_t i) {
    return floats_at(x, i, 1);
}

float* row_of(ggml_tensor* x, int64_t i) {
    return floats_at(x, i, 1);
}

// ---- Norms ----

FLUX2_INLINE void modulate_row(float* y, const float* x, const float* scale, const float* shift,
                               int64_t n, float eps) {
    const auto count = static_cast<float>(n);
    const float mean = sum_over(n, [=](int64_t i) { return x[i]; }) / count;
    const float squares = sum_over(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float factor = 1 / std::sqrt(squares / count + eps);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = (x[i] - mean) * factor * (1 + scale[i]) + shift[i];
    }
}

FLUX2_INLINE void rms_norm_row(float* y, const float* x, const float* scale, int64_t n, float eps) {
    const float squares = sum_over(n, [=](int64_t i) { return x[i] * x[i]; });
    const float factor = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * factor * scale[i];
    }
}

// ---- Value by value ----

FLUX2_INLINE void add_gated_row(float* y, const float* x, const float* branch, const float* gate,
                                int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] + gate[i] * branch[i];
    }
}

// At most 16 values. Two loops: in one, GCC divides every gate by the largest exponential as well,
// which gives denormal numbers, at 150 cycles for each vector of them.
FLUX2_INLINE void swiglu_some(float* y, const float* gate, const float* up, int64_t n) {
    std::array<float, kChains> divisors;
    for (int64_t i = 0; i < n; ++i) {
        divisors[static_cast<size_t>(i)] = 1 + exp_of(-gate[i]);
    }
    for (int64_t i = 0; i < n; ++i) {
        y[i] = gate[i] / divisors[static_cast<size_t>(i)] * up[i];
    }
}

FLUX2_INLINE void swiglu_row(float* y, const float* gate, const float* up, int64_t n) {
    int64_t first = 0;
    for (; first + kChains <= n; first += kChains) {
        swiglu_some(y + first, gate + first, up + first, kChains);
    }
    swiglu_some(y + first, gate + first, up + first, n - first);
}

// ---- Heads ----

// Pairs are neighbours, or value i and value i + n / 2. table: cosine and sine of each pair.
FLUX2_INLINE void rotate_head(float* y, const float* table, int64_t n, bool halves) {
    const int64_t step = halves ? 1 : 2;
    const int64_t distance = halves ? n / 2 : 1;
    for (int64_t i = 0; i < n / 2; ++i) {
        float* first = y + i * step;
        const float a = first[0];
        const float b = first[distance];
        const float c = table[2 * i];
        const float s = table[2 * i + 1];
        first[0] = a * c - b * s;
        first[distance] = a * s + b * c;
    }
}

struct HeadsRow {
    const float* norm;   // null: heads stay as they are
    const float* table;  // null: they are not rotated
    int64_t head_dim;
    own::HeadsParams params;
};

FLUX2_INLINE void make_head(float* y, const float* x, const HeadsRow* row) {
    if (row->norm != nullptr) {
        rms_norm_row(y, x, row->norm, row->head_dim, row->params.eps);
    } else {
        std::copy_n(x, row->head_dim, y);
    }
    if (row->table != nullptr && row->params.halves) {
        rotate_head(y, row->table, row->head_dim, true);
    } else if (row->table != nullptr) {
        rotate_head(y, row->table, row->head_dim, false);
    }
}

}  // namespace

void modulate(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::NormParams>(y);
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        const int set = i < params.n_first ? 1 : 3;
        call_best<modulate_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[set], 0),
                                row_of(y->src[set + 1], 0), y->ne[0], params.eps);
    });
}

void rms_norm(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::NormParams>(y);
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        call_best<rms_norm_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[1], 0), y->ne[0],
                                params.eps);
    });
}

void add_gated(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::GateParams>(y);
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        call_best<add_gated_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[1], i),
                                 row_of(y->src[i < params.n_first ? 2 : 3], 0), y->ne[0]);
    });
}

void swiglu(ggml_tensor* y, int, int nth, void* work) {
    const ggml_tensor *gate = y->src[0], *up = y->src[1], *before = y->src[2];
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        float* to = row_of(y, i);
        if (before != nullptr) {
            to = std::copy_n(row_of(before, i), before->ne[0], to);
        }
        call_best<swiglu_row>(to, row_of(gate, i), row_of(up, i), gate->ne[0]);
    });
}

void join_heads(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::HeadsParams>(y);
    const int sources = params.normalises ? 2 : 1;  // of a part
    const int64_t n_first = y->src[0]->ne[2];
    share_items(work, y->ne[2], nth, [&](int64_t i) {
        const int part = i < n_first ? 0 : 1;
        const ggml_tensor* x = y->src[part * sources];
        const HeadsRow row = {
            .norm = params.normalises ? row_of(y->src[part * sources + 1], 0) : nullptr,
            .table = params.rotates ? row_of(y->src[params.n_parts * sources], i) : nullptr,
            .head_dim = y->ne[0],
            .params = params};
        for (int64_t head = 0; head < y->ne[1]; ++head) {
            const float* from = floats_at(x, i - part * n_first, 2, head);
            call_best<make_head>(floats_at(y, i, 2, head), from, &row);
        }
    });
}

}  // namespace flux2::cpu
