#include "compute/cpu/token_ops.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/plain/own_node.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

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

// The sum of f(x[i]), in sixteen chains side by side, which become vector code.
template <typename F>
FLUX2_INLINE float sum_of(const float* x, int64_t n, const F& f) {
    constexpr int64_t kChains = 16;
    std::array<float, kChains> chains = {};
    int64_t first = 0;
    for (; first + kChains <= n; first += kChains) {
        for (int64_t i = 0; i < kChains; ++i) {
            chains[static_cast<size_t>(i)] += f(x[first + i]);
        }
    }
    for (; first < n; ++first) {
        chains[0] += f(x[first]);
    }
    return std::accumulate(chains.begin(), chains.end(), 0.0f);
}

// ---- Norms ----

struct NormParams {
    int64_t n_first;  // tokens of the first span
    float eps;
};

FLUX2_INLINE void modulate_row(float* y, const float* x, const float* scale, const float* shift,
                               int64_t n, float eps) {
    const auto count = static_cast<float>(n);
    const float mean = sum_of(x, n, [](float v) { return v; }) / count;
    const float squares = sum_of(x, n, [=](float v) { return (v - mean) * (v - mean); });
    const float factor = 1 / std::sqrt(squares / count + eps);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = (x[i] - mean) * factor * (1 + scale[i]) + shift[i];
    }
}

void modulate_rows(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<NormParams>(y);
    for (int64_t i = ith; i < y->ne[1]; i += nth) {
        const int set = i < params.n_first ? 1 : 3;
        call_best<modulate_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[set], 0),
                                row_of(y->src[set + 1], 0), y->ne[0], params.eps);
    }
}

FLUX2_INLINE void rms_norm_row(float* y, const float* x, const float* scale, int64_t n, float eps) {
    const float squares = sum_of(x, n, [](float v) { return v * v; });
    const float factor = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * factor * scale[i];
    }
}

void rms_norm_rows(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<NormParams>(y);
    for (int64_t i = ith; i < y->ne[1]; i += nth) {
        call_best<rms_norm_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[1], 0), y->ne[0],
                                params.eps);
    }
}

// ---- Value by value ----

struct GateParams {
    int64_t n_first;
};

FLUX2_INLINE void add_gated_row(float* y, const float* x, const float* branch, const float* gate,
                                int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] + gate[i] * branch[i];
    }
}

void add_gated_rows(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<GateParams>(y);
    for (int64_t i = ith; i < y->ne[1]; i += nth) {
        call_best<add_gated_row>(row_of(y, i), row_of(y->src[0], i), row_of(y->src[1], i),
                                 row_of(y->src[i < params.n_first ? 2 : 3], 0), y->ne[0]);
    }
}

FLUX2_INLINE void swiglu_row(float* y, const float* gate, const float* up, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = gate[i] / (1 + exp_of(-gate[i])) * up[i];
    }
}

void swiglu_rows(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *gate = y->src[0], *up = y->src[1], *before = y->src[2];
    for (int64_t i = ith; i < y->ne[1]; i += nth) {
        float* to = row_of(y, i);
        if (before != nullptr) {
            to = std::copy_n(row_of(before, i), before->ne[0], to);
        }
        call_best<swiglu_row>(to, row_of(gate, i), row_of(up, i), gate->ne[0]);
    }
}

// ---- Heads ----

struct HeadsParams {
    int32_t n_parts;
    bool normalises, turns, halves;
    float eps;
};

// Pairs are neighbours, or value i and value i + n / 2. table: cosine and sine of each pair.
FLUX2_INLINE void turn_head(float* y, const float* table, int64_t n, bool halves) {
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
    const float* table;  // null: they are not turned
    int64_t head_dim;
    HeadsParams params;
};

FLUX2_INLINE void make_head(float* y, const float* x, const HeadsRow* row) {
    if (row->norm != nullptr) {
        rms_norm_row(y, x, row->norm, row->head_dim, row->params.eps);
    } else {
        std::copy_n(x, row->head_dim, y);
    }
    if (row->table != nullptr && row->params.halves) {
        turn_head(y, row->table, row->head_dim, true);
    } else if (row->table != nullptr) {
        turn_head(y, row->table, row->head_dim, false);
    }
}

void join_heads_rows(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<HeadsParams>(y);
    const int sources = params.normalises ? 2 : 1;  // of a part
    const int64_t n_first = y->src[0]->ne[2];
    for (int64_t i = ith; i < y->ne[2]; i += nth) {
        const int part = i < n_first ? 0 : 1;
        const ggml_tensor* x = y->src[part * sources];
        const HeadsRow row = {
            .norm = params.normalises ? row_of(y->src[part * sources + 1], 0) : nullptr,
            .table = params.turns ? row_of(y->src[params.n_parts * sources], i) : nullptr,
            .head_dim = y->ne[0],
            .params = params};
        for (int64_t head = 0; head < y->ne[1]; ++head) {
            const float* from = floats_at(x, i - part * n_first, 2, head);
            call_best<make_head>(floats_at(y, i, 2, head), from, &row);
        }
    }
}

NodeResult like(const char* name, const ggml_tensor* x) {
    return {name, GGML_TYPE_F32, {x->ne[0], x->ne[1], 1, 1}};
}

}  // namespace

ggml_tensor* modulate(Graph& g, ggml_tensor* x, std::span<const ModSpan> spans) {
    constexpr float kEps = 1e-6f;
    const Mod& a = spans.front().mod;
    const Mod b = spans.size() > 1 ? spans[1].mod : Mod{};
    return own_node(g, like("cpu modulate", x), {x, a.scale, a.shift, b.scale, b.shift},
                    modulate_rows, NormParams{.n_first = spans.front().n, .eps = kEps});
}

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* scale, float eps) {
    return own_node(g, like("cpu rms norm", x), {x, scale}, rms_norm_rows,
                    NormParams{.n_first = x->ne[1], .eps = eps});
}

ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch,
                       std::span<const ModSpan> spans) {
    ggml_tensor* second = spans.size() > 1 ? spans[1].mod.gate : nullptr;
    return own_node(g, like("cpu add gated", x), {x, branch, spans.front().mod.gate, second},
                    add_gated_rows, GateParams{.n_first = spans.front().n});
}

ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before) {
    const int64_t width = gate->ne[0] + (before != nullptr ? before->ne[0] : 0);
    return own_node(g, {"cpu swiglu", GGML_TYPE_F32, {width, gate->ne[1], 1, 1}},
                    {gate, up, before}, swiglu_rows, 0);
}

ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps) {
    const HeadsPart& a = parts.front();
    const HeadsPart b = parts.size() > 1 ? parts[1] : HeadsPart{};
    const int64_t n = a.x->ne[2] + (b.x != nullptr ? b.x->ne[2] : 0);
    return own_node(g, {"cpu join heads", GGML_TYPE_F32, {a.x->ne[0], a.x->ne[1], n, 1}},
                    {a.x, a.norm, b.x, b.norm, rope != nullptr ? rope->table : nullptr},
                    join_heads_rows,
                    HeadsParams{.n_parts = static_cast<int32_t>(parts.size()),
                                .normalises = a.norm != nullptr,
                                .turns = rope != nullptr,
                                .halves = rope != nullptr && rope->halves,
                                .eps = eps});
}

}  // namespace flux2::cpu
