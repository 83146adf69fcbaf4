#include "compute/cuda/gradient_launches.hpp"

#include "compute/cuda/attention_gradient.hpp"
#include "compute/cuda/gradient_ops.hpp"
#include "compute/cuda/node_tensors.hpp"
#include "compute/plain/gradient_nodes.hpp"

#include <algorithm>
#include <initializer_list>

namespace flux2::cuda {
namespace {

bool are(ggml_type type, std::initializer_list<const ggml_tensor*> tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [&](const ggml_tensor* x) { return x->type == type; });
}

const __nv_bfloat16* bf16_of(const ggml_tensor* x) {
    return static_cast<const __nv_bfloat16*>(x->data);
}

__nv_bfloat16* bf16_result(const ggml_tensor* y) {
    return static_cast<__nv_bfloat16*>(y->data);
}

// Rows from `first` on.
Bf16Rows rows_of(const ggml_tensor* x, int64_t first = 0) {
    return {.data = bf16_of(x) + first * stride_of(x), .stride = stride_of(x)};
}

// The sources of swiglu's gradient after the one that it may be written into.
const ggml_tensor* const* swiglu_sources(const ggml_tensor* y) {
    return y->src + (y->src[3] != nullptr ? 1 : 0);
}

TokenHeads heads_of(const ggml_tensor* x, int token_axis) {
    return {.data = bf16_of(x), .stride = stride_of(x, token_axis)};
}

AttentionGradientArgs attention_args(const Context& context, const ggml_tensor* y) {
    const ggml_tensor *q = y->src[0], *kept = y->src[3];
    const int64_t width = q->ne[0] * q->ne[1];
    constexpr int64_t kValuesOfFloat = sizeof(float) / sizeof(__nv_bfloat16);
    return {.q = heads_of(q, 2),
            .k = heads_of(y->src[1], 2),
            .v = heads_of(y->src[2], 2),
            .out = heads_of(kept, 1),
            .d = heads_of(y->src[4], 1),
            .log_sums = reinterpret_cast<const float*>(bf16_of(kept) + width),
            .log_sums_stride = stride_of(kept) / kValuesOfFloat,
            .rows = static_cast<float2*>(context.scratch),
            .result_stride = stride_of(y),
            .n = as_int(q->ne[2]),
            .n_head = as_int(q->ne[1]),
            .head_dim = as_int(q->ne[0])};
}

}  // namespace

bool takes_scale_rows(const ggml_tensor* y) {
    return are(GGML_TYPE_F32, {y->src[0], y->src[1]}) && are(GGML_TYPE_BF16, {y});
}

cudaError_t run_scale_rows(const Context& context, const ggml_tensor* y) {
    return scale_rows({.x = vector_of(y->src[0]),
                       .x_stride = stride_of(y->src[0]),
                       .scale = vector_of(y->src[1]),
                       .y = bf16_result(y),
                       .y_stride = stride_of(y),
                       .n = as_int(y->ne[1]),
                       .width = as_int(y->ne[0])},
                      context.stream);
}

bool takes_modulate_gradient(const ggml_tensor* y) {
    const ggml_type d = y->src[2]->type;
    return are(GGML_TYPE_F32, {y, y->src[0], y->src[1]}) &&
           (d == GGML_TYPE_F32 || d == GGML_TYPE_BF16) &&
           (y->src[3] == nullptr || y->src[3]->type == GGML_TYPE_F32);
}

cudaError_t run_modulate_gradient(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* before = y->src[3];
    return modulate_gradient({.x = vector_of(y->src[0]),
                              .x_stride = stride_of(y->src[0]),
                              .scale = vector_of(y->src[1]),
                              .d = matrix_of(y->src[2]),
                              .before = vector_of(before),
                              .before_stride = before != nullptr ? stride_of(before) : 0,
                              .y = static_cast<float*>(y->data),
                              .n = as_int(y->ne[1]),
                              .width = as_int(y->ne[0]),
                              .eps = params_of<own::ModulateGradientParams>(y).eps},
                             context.stream);
}

bool takes_swiglu_gradient(const ggml_tensor* y) {
    const ggml_tensor* const* sources = swiglu_sources(y);
    return are(GGML_TYPE_BF16, {y, sources[0], sources[1], sources[2]});
}

cudaError_t run_swiglu_gradient(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* const* sources = swiglu_sources(y);
    const int64_t width = sources[0]->ne[0];
    return swiglu_gradient({.gate = rows_of(sources[0]),
                            .up = rows_of(sources[1]),
                            .d = rows_of(sources[2]),
                            .y = bf16_result(y) + y->ne[0] - 2 * width,
                            .y_stride = stride_of(y),
                            .n = as_int(y->ne[1]),
                            .width = as_int(width)},
                           context.stream);
}

bool takes_heads_gradient(const ggml_tensor* y) {
    return are(GGML_TYPE_BF16, {y, y->src[0], y->src[1], y->src[2]}) &&
           are(GGML_TYPE_F32, {y->src[3], y->src[4], y->src[5]});
}

cudaError_t run_heads_gradient(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::HeadsGradientParams>(y);
    const int64_t head_dim = y->src[3]->ne[0];
    return heads_gradient({.dq = rows_of(y->src[0], params.first),
                           .dkv = rows_of(y->src[1], params.first),
                           .projection = rows_of(y->src[2]),
                           .q_norm = vector_of(y->src[3]),
                           .k_norm = vector_of(y->src[4]),
                           .table = vector_of(y->src[5]) + params.first * head_dim,
                           .y = bf16_result(y),
                           .y_stride = stride_of(y),
                           .n = as_int(y->ne[1]),
                           .n_head = as_int(y->src[0]->ne[0] / head_dim),
                           .head_dim = as_int(head_dim),
                           .eps = params.eps},
                          context.stream);
}

bool takes_attention_gradient(const ggml_tensor* y) {
    const int64_t head_dim = y->src[0]->ne[0];
    return are(GGML_TYPE_BF16, {y, y->src[0], y->src[1], y->src[2], y->src[3], y->src[4]}) &&
           (head_dim == 32 || head_dim == 64 || head_dim == 128) &&
           attention_gradient_bytes(y->ne[1], y->src[0]->ne[1]) <= kScratchBytes;
}

cudaError_t run_query_gradient(const Context& context, const ggml_tensor* y) {
    AttentionGradientArgs args = attention_args(context, y);
    args.dq = bf16_result(y);
    return context.hopper && hopper_gradient_supports(args)
               ? hopper_query_gradient(args, context.stream)
               : query_gradient(args, context.stream);
}

cudaError_t run_key_gradient(const Context& context, const ggml_tensor* y) {
    AttentionGradientArgs args = attention_args(context, y);
    args.dk = bf16_result(y);
    args.dv = bf16_result(y) + y->ne[0] / 2;
    return context.hopper && hopper_gradient_supports(args)
               ? hopper_key_gradient(args, context.stream)
               : key_gradient(args, context.stream);
}

}  // namespace flux2::cuda
