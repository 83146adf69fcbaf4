#include "compute/cpu/gradient_ops.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/sums.hpp"
#include "compute/cpu/values.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace flux2::cpu {
namespace {

const float* row_at(const ggml_tensor* x, int64_t i) {
    return values(x) + i * static_cast<int64_t>(x->nb[1] / sizeof(float));
}

float* row_at(ggml_tensor* x, int64_t i) {
    return values(x) + i * static_cast<int64_t>(x->nb[1] / sizeof(float));
}

struct ModulateRow {
    const float *x, *scale, *d, *before;  // before: may be null
    float* y;
    int64_t n;
    float eps;
};

FLUX2_INLINE void modulate_gradient_row(const ModulateRow* row) {
    // Not a structured binding: Clang before 16 cannot use its names in lambdas.
    const float *const x = row->x, *const scale = row->scale, *const d = row->d;
    const float* const before = row->before;
    float* const y = row->y;
    const int64_t n = row->n;
    const float eps = row->eps;
    const auto count = static_cast<float>(n);
    const float mean = sum_over(n, [=](int64_t i) { return x[i]; }) / count;
    const float squares = sum_over(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float factor = 1 / std::sqrt(squares / count + eps);
    const float mean_g = sum_over(n, [=](int64_t i) { return d[i] * (1 + scale[i]); }) / count;
    const float mean_gx =
        sum_over(n, [=](int64_t i) { return d[i] * (1 + scale[i]) * (x[i] - mean); }) * factor /
        count;
    for (int64_t i = 0; i < n; ++i) {
        const float normalised = (x[i] - mean) * factor;
        y[i] = (d[i] * (1 + scale[i]) - mean_g - normalised * mean_gx) * factor;
    }
    for (int64_t i = 0; before != nullptr && i < n; ++i) {
        y[i] += before[i];
    }
}

// In two loops for the reason that swiglu has (compute/cpu/token_ops).
FLUX2_INLINE void swiglu_gradient_row(float* y, const float* gate, const float* up, const float* d,
                                      int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[n + i] = 1 + exp_of(-gate[i]);
    }
    for (int64_t i = 0; i < n; ++i) {
        const float sigmoid = 1 / y[n + i];
        y[i] = d[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
        y[n + i] = d[i] * gate[i] * sigmoid;
    }
}

// Back through the rotation of neighbours, then through the RMS norm.
FLUX2_INLINE void head_gradient(float* y, const float* x, const float* norm, const float* table,
                                const float* d, int64_t n, float eps) {
    const auto count = static_cast<float>(n);
    for (int64_t i = 0; i + 1 < n; i += 2) {
        y[i] = (d[i] * table[i] + d[i + 1] * table[i + 1]) * norm[i];
        y[i + 1] = (d[i + 1] * table[i] - d[i] * table[i + 1]) * norm[i + 1];
    }
    const float squares = sum_over(n, [=](int64_t i) { return x[i] * x[i]; });
    const float factor = 1 / std::sqrt(squares / count + eps);
    const float mean = sum_over(n, [=](int64_t i) { return x[i] * y[i]; }) * factor / count;
    for (int64_t i = 0; i < n; ++i) {
        y[i] = (y[i] - x[i] * factor * mean) * factor;
    }
}

}  // namespace

void modulate_gradient(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::ModulateGradientParams>(y);
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        const ModulateRow row = {.x = row_at(y->src[0], i),
                                 .scale = values(y->src[1]),
                                 .d = row_at(y->src[2], i),
                                 .before = y->src[3] != nullptr ? row_at(y->src[3], i) : nullptr,
                                 .y = row_at(y, i),
                                 .n = y->ne[0],
                                 .eps = params.eps};
        call_best<modulate_gradient_row>(&row);
    });
}

void swiglu_gradient(ggml_tensor* y, int, int nth, void* work) {
    const ggml_tensor* const* sources = y->src + (y->src[3] != nullptr ? 1 : 0);
    const int64_t n = sources[0]->ne[0];
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        call_best<swiglu_gradient_row>(row_at(y, i) + y->ne[0] - 2 * n, row_at(sources[0], i),
                                       row_at(sources[1], i), row_at(sources[2], i), n);
    });
}

void heads_gradient(ggml_tensor* y, int, int nth, void* work) {
    const auto params = params_of<own::HeadsGradientParams>(y);
    const ggml_tensor *dq = y->src[0], *dkv = y->src[1], *projection = y->src[2];
    const int64_t width = dq->ne[0];
    const int64_t head_dim = y->src[3]->ne[0];
    share_items(work, y->ne[1], nth, [&](int64_t i) {
        const int64_t token = params.first + i;
        const float* d_keys = row_at(dkv, token);
        float* to = row_at(y, i);
        for (int64_t first = 0; first < 2 * width; first += head_dim) {
            const bool is_query = first < width;
            const float* d = is_query ? row_at(dq, token) + first : d_keys + first - width;
            call_best<head_gradient>(to + first, row_at(projection, i) + first,
                                     static_cast<const float*>(values(y->src[is_query ? 3 : 4])),
                                     static_cast<const float*>(row_at(y->src[5], token)), d,
                                     head_dim, params.eps);
        }
        std::copy_n(d_keys + width, width, to + 2 * width);
    });
}

}  // namespace flux2::cpu
