#include "compute/ops.hpp"

#include "compute/cpu/attention.hpp"

#include <algorithm>
#include <cmath>

namespace flux2 {
namespace {

// [head_dim, n_head, n] -> [head_dim, n, n_head], as a view.
ggml_tensor* heads_last(Graph& g, ggml_tensor* x) {
    return ggml_permute(g, x, 0, 2, 1, 3);
}

float attention_scale(const ggml_tensor* q) {
    return 1.0f / std::sqrt(static_cast<float>(q->ne[0]));
}

}  // namespace

ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    ggml_tensor* y = ggml_mul_mat(g, w, x);
    // Sums in F32: residual streams of these models leave the range of F16.
    ggml_prec_set_acc(y, GGML_PREC_F32);
    return y;
}

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps) {
    return ggml_mul(g, ggml_rms_norm(g, x, eps), weight);
}

ggml_tensor* columns(Graph& g, ggml_tensor* x, int64_t first, int64_t n) {
    return ggml_view_2d(g, x, x->ne[0], n, x->nb[1], static_cast<size_t>(first) * x->nb[1]);
}

ggml_tensor* rope_axes(Graph& g, ggml_tensor* x, const Positions& pos, float theta) {
    const int64_t part = x->ne[0] / Positions::kAxes;
    ggml_tensor* turned = nullptr;
    for (size_t i = 0; i < pos.axis.size(); ++i) {
        ggml_tensor* axis = ggml_view_3d(g, x, part, x->ne[1], x->ne[2], x->nb[1], x->nb[2],
                                         ggml_row_size(x->type, part * static_cast<int64_t>(i)));
        axis = ggml_rope_ext(g, axis, pos.axis[i], nullptr, static_cast<int>(part),
                             GGML_ROPE_TYPE_NORMAL, 0, theta, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f);
        turned = turned == nullptr ? axis : ggml_concat(g, turned, axis, 0);
    }
    return turned;
}

ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    if (g.has_own_operations()) {
        return cpu::attention(g, q, k, v, nullptr);
    }
    ggml_tensor* o = ggml_flash_attn_ext(g, heads_last(g, q), heads_last(g, k), heads_last(g, v),
                                         nullptr, attention_scale(q), 0.0f, 0.0f);
    ggml_prec_set_acc(o, GGML_PREC_F32);
    return ggml_reshape_2d(g, o, q->ne[0] * q->ne[1], q->ne[2]);  // [head_dim, n_head, n] ->
}

ggml_tensor* masked_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                              ggml_tensor* mask) {
    if (g.has_own_operations()) {
        return cpu::attention(g, q, k, v, mask);
    }
    ggml_tensor* scores = ggml_mul_mat(g, heads_last(g, k), heads_last(g, q));  // [n_kv, n, n_head]
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    scores = ggml_soft_max_ext(g, scores, mask, attention_scale(q), 0.0f);
    // v [head_dim, n_head_kv, n_kv] -> [n_kv, head_dim, n_head_kv]
    ggml_tensor* columns_of_v = ggml_cont(g, ggml_permute(g, v, 1, 2, 0, 3));
    ggml_tensor* o = ggml_mul_mat(g, columns_of_v, scores);  // [head_dim, n, n_head]
    o = ggml_cont(g, ggml_permute(g, o, 0, 2, 1, 3));        // [head_dim, n_head, n]
    return ggml_reshape_2d(g, o, q->ne[0] * q->ne[1], q->ne[2]);
}

ggml_tensor* sliced_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    constexpr int64_t kSlice = 1024;
    const int64_t n = q->ne[1];
    ggml_tensor* columns_of_v = ggml_cont(g, ggml_transpose(g, v));  // [n, width]
    ggml_tensor* result = nullptr;
    for (int64_t first = 0; first < n; first += kSlice) {
        ggml_tensor* slice = columns(g, q, first, std::min(kSlice, n - first));
        ggml_tensor* scores = ggml_mul_mat(g, k, slice);  // [n, slice]
        ggml_prec_set_acc(scores, GGML_PREC_F32);
        scores = ggml_soft_max_ext(g, scores, nullptr, attention_scale(q), 0.0f);
        ggml_tensor* part = ggml_mul_mat(g, columns_of_v, scores);  // [width, slice]
        result = result == nullptr ? part : ggml_concat(g, result, part, 1);
        g.expand(result);  // one slice after the other, not all scores first
    }
    return result;
}

}  // namespace flux2
