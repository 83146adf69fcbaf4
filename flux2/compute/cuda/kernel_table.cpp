#include "compute/cuda/kernel_table.hpp"

#include "compute/cuda/attention.hpp"
#include "compute/cuda/conv_hopper.hpp"
#include "compute/cuda/fusion.hpp"
#include "compute/cuda/gradient_launches.hpp"
#include "compute/cuda/group_norm.hpp"
#include "compute/cuda/node_tensors.hpp"
#include "compute/cuda/pixels.hpp"
#include "compute/cuda/products.hpp"
#include "compute/cuda/token_ops.hpp"
#include "compute/cuda/unpack.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/plain/gradient_nodes.hpp"
#include "compute/plain/put_node.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace flux2::cuda {
namespace {

// ---- One function per node ----

// None for types that unpack() does not read.
std::optional<BlockType> block_type(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:
            return BlockType::f32;
        case GGML_TYPE_F16:
            return BlockType::f16;
        case GGML_TYPE_Q4_0:
            return BlockType::q4_0;
        case GGML_TYPE_Q5_0:
            return BlockType::q5_0;
        case GGML_TYPE_Q4_K:
            return BlockType::q4_k;
        case GGML_TYPE_Q5_K:
            return BlockType::q5_k;
        case GGML_TYPE_Q6_K:
            return BlockType::q6_k;
        case GGML_TYPE_Q8_0:
            return BlockType::q8_0;
        default:
            return std::nullopt;
    }
}

bool takes_unpack(const ggml_tensor* y) {
    const ggml_tensor* w = y->src[0];
    return block_type(w->type).has_value() && ggml_is_contiguous(w) && w->ne[0] % 8 == 0;
}

cudaError_t run_unpack(const Context& context, const ggml_tensor* y) {
    const ggml_tensor *w = y->src[0], *after = y->src[1];
    return unpack(
        {.blocks = w->data,
         .type = block_type(w->type).value(),
         .after = after != nullptr ? static_cast<const __nv_bfloat16*>(after->data) : nullptr,
         .y = static_cast<__nv_bfloat16*>(y->data),
         .y_stride = matrix_of(y).stride,
         .n_rows = as_int(w->ne[1]),
         .n_in = as_int(w->ne[0]),
         .n_after = after != nullptr ? as_int(after->ne[0]) : 0},
        context.stream);
}

NormArgs norm_args(const ggml_tensor* y) {
    const auto params = params_of<own::NormParams>(y);
    return {.x = matrix_of(y->src[0]),
            .y = result_of(y),
            .n = as_int(y->ne[1]),
            .n_first = as_int(params.n_first),
            .width = as_int(y->src[0]->ne[0]),
            .eps = params.eps,
            .centred = params.centred,
            .shift = {vector_of(y->src[2]), vector_of(y->src[4])},
            .scale = {vector_of(y->src[1]), vector_of(y->src[3])}};
}

cudaError_t run_norm(const Context& context, const ggml_tensor* y) {
    return norm(norm_args(y), context.stream);
}

GateArgs gate_args(const ggml_tensor* y) {
    return {.x = vector_of(y->src[0]),
            .branch = matrix_of(y->src[1]),
            .y = static_cast<float*>(y->data),
            .n = as_int(y->ne[1]),
            .n_first = as_int(params_of<own::GateParams>(y).n_first),
            .width = as_int(y->ne[0]),
            .gate = {vector_of(y->src[2]), vector_of(y->src[3])}};
}

cudaError_t run_add_gated(const Context& context, const ggml_tensor* y) {
    return add_gated(gate_args(y), context.stream);
}

cudaError_t run_add_gated_and_norm(const Context& context, const ggml_tensor* y) {
    return add_gated_and_norm(gate_args(y->src[0]), norm_args(y), context.stream);
}

cudaError_t run_swiglu(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* before = y->src[2];
    return swiglu({.gate = matrix_of(y->src[0]),
                   .up = matrix_of(y->src[1]),
                   .before = before != nullptr ? matrix_of(before) : Matrix{},
                   .y = result_of(y),
                   .n = as_int(y->ne[1]),
                   .width = as_int(y->src[0]->ne[0]),
                   .before_width = before != nullptr ? as_int(before->ne[0]) : 0},
                  context.stream);
}

cudaError_t run_rope_table(const Context& context, const ggml_tensor* y) {
    RopeTableArgs args = {.n = as_int(y->ne[1]),
                          .head_dim = as_int(y->ne[0]),
                          .theta = params_of<own::RopeParams>(y).theta,
                          .table = static_cast<float*>(y->data)};
    while (args.n_axes < 4 && y->src[args.n_axes] != nullptr) {
        args.axis[args.n_axes] = static_cast<const int32_t*>(y->src[args.n_axes]->data);
        ++args.n_axes;
    }
    return rope_table(args, context.stream);
}

bool takes_join_heads(const ggml_tensor* y) {
    return y->type == GGML_TYPE_BF16;
}

cudaError_t run_join_heads(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::HeadsParams>(y);
    const int sources = params.normalises ? 2 : 1;  // of a part
    HeadsArgs args = {
        .table = params.rotates ? vector_of(y->src[params.n_parts * sources]) : nullptr,
        .halves = params.halves,
        .n_head = as_int(y->ne[1]),
        .head_dim = as_int(y->ne[0]),
        .eps = params.eps,
        .y = y->data};
    for (int i = 0; i < params.n_parts; ++i) {
        const ggml_tensor* x = y->src[i * sources];
        args.part[i] = {.x = matrix_of(x, /*token_axis=*/2),
                        .norm = params.normalises ? vector_of(y->src[i * sources + 1]) : nullptr,
                        .n = as_int(x->ne[2])};
    }
    return join_heads(args, context.stream);
}

KeysValues keys_values(const ggml_tensor* k, const ggml_tensor* v) {
    return {.k = static_cast<const __nv_bfloat16*>(k->data),
            .v = static_cast<const __nv_bfloat16*>(v->data),
            .k_stride = matrix_of(k, 2).stride,
            .v_stride = matrix_of(v, 2).stride,
            .n = as_int(k->ne[2])};
}

// Sums after each row, in F32.
float* log_sums_of(const ggml_tensor* y, int64_t width) {
    return reinterpret_cast<float*>(static_cast<__nv_bfloat16*>(y->data) + width);
}

bool takes_attention(const ggml_tensor* y) {
    return y->type == GGML_TYPE_BF16 && y->src[0]->type == GGML_TYPE_BF16 &&
           y->src[1]->type == GGML_TYPE_BF16 && y->src[2]->type == GGML_TYPE_BF16;
}

cudaError_t run_attention(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::AttentionParams>(y);
    const ggml_tensor *q = y->src[0], *k = y->src[1];
    constexpr int64_t kValuesOfFloat = sizeof(float) / sizeof(__nv_bfloat16);
    const AttentionArgs args = {
        .q = static_cast<const __nv_bfloat16*>(q->data),
        .q_stride = matrix_of(q, 2).stride,
        .own = keys_values(k, y->src[2]),
        .kept = params.has_kept ? keys_values(y->src[3], y->src[4]) : KeysValues{},
        .mask = params.has_mask ? vector_of(y->src[params.has_kept ? 5 : 3]) : nullptr,
        .out = static_cast<__nv_bfloat16*>(y->data),
        .out_stride = y->ne[0],
        .log_sums = params.keeps_sums ? log_sums_of(y, q->ne[0] * q->ne[1]) : nullptr,
        .log_sums_stride = y->ne[0] / kValuesOfFloat,
        .n_queries = as_int(q->ne[2]),
        .n_main = as_int(params.n_main),
        .n_head = as_int(q->ne[1]),
        .n_head_kv = as_int(k->ne[1]),
        .head_dim = as_int(q->ne[0])};
    return context.hopper && hopper_attention_supports(args)
               ? hopper_attention(args, context.stream)
               : attention(args, context.stream);
}

// ---- Feature maps ----

static_assert(kScale == own::kHalfScale);
static_assert(kNormGroups == own::kNormGroups && kNormEps == own::kNormEps);

half* half_of(const ggml_tensor* x) {
    return static_cast<half*>(x->data);
}

bool is_half(const ggml_tensor* x) {
    return x->type == GGML_TYPE_F16;
}

float* floats_of(const ggml_tensor* x) {
    return static_cast<float*>(x->data);
}

cudaError_t run_planes_to_half(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* planes = y->src[0];
    return planes_to_pixels({.planes = floats_of(planes),
                             .pixels = half_of(y),
                             .n_pixels = planes->ne[0] * planes->ne[1],
                             .channels = as_int(planes->ne[2])},
                            context.stream);
}

cudaError_t run_pixels_to_planes(const Context& context, const ggml_tensor* y) {
    return pixels_to_planes({.pixels = floats_of(y->src[0]),
                             .planes = floats_of(y),
                             .n_pixels = y->ne[0] * y->ne[1],
                             .channels = as_int(y->ne[2])},
                            context.stream);
}

cudaError_t run_to_half(const Context& context, const ggml_tensor* y) {
    return to_half({.x = floats_of(y->src[0]), .y = half_of(y), .n = ggml_nelements(y)},
                   context.stream);
}

cudaError_t run_pack_filter(const Context& context, const ggml_tensor* y) {
    const ggml_tensor* filter = y->src[0];
    return pack_filter({.weight = filter->data,
                        .weight_is_half = filter->type == GGML_TYPE_F16,
                        .packed = half_of(y),
                        .in = as_int(filter->ne[2]),
                        .out = as_int(filter->ne[3]),
                        .size = as_int(filter->ne[0])},
                       context.stream);
}

cudaError_t run_conv(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::ConvParams>(y);
    const ggml_tensor* x = y->src[0];
    const ConvArgs args = {.x = half_of(x),
                           .weight = half_of(y->src[1]),
                           .bias = vector_of(y->src[2]),
                           .skip = y->src[3] != nullptr ? y->src[3]->data : nullptr,
                           .skip_is_half = y->src[3] != nullptr && is_half(y->src[3]),
                           .y = y->data,
                           .y_is_half = is_half(y),
                           .width = as_int(x->ne[1]),
                           .height = as_int(x->ne[2]),
                           .in = as_int(x->ne[0]),
                           .out = as_int(y->ne[0]),
                           .size = params.size,
                           .stride = params.stride,
                           .scale = params.scale};
    return context.hopper && conv_hopper_suits(args) ? conv_hopper(args, context.stream)
                                                     : conv(args, context.stream);
}

NormMap norm_map(const ggml_tensor* x, int64_t height) {
    return {.data = x->data,
            .is_half = is_half(x),
            .width = x->ne[1],
            .rows = x->ne[2],
            .height = height,
            .channels = as_int(x->ne[0])};
}

cudaError_t run_moments(const Context& context, const ggml_tensor* y) {
    const MomentsArgs args = {.x = norm_map(y->src[0], params_of<own::MomentsParams>(y).height),
                              .workspace = context.scratch,
                              .moments = static_cast<double*>(y->data)};
    return group_norm_workspace_bytes(args.x) <= kScratchBytes ? group_moments(args, context.stream)
                                                               : cudaErrorMemoryAllocation;
}

cudaError_t run_group_norm(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::GroupNormParams>(y);
    const ggml_tensor* moments = y->src[3];
    const GroupNormArgs args = {
        .x = norm_map(y->src[0], y->ne[2]),
        .weight = vector_of(y->src[1]),
        .bias = vector_of(y->src[2]),
        .y = half_of(y),
        .workspace = context.scratch,
        .silu = params.silu,
        .moments = moments != nullptr ? static_cast<const double*>(moments->data) : nullptr,
        .n_bands = moments != nullptr ? moments->ne[2] : 0,
        .band_pixels = params.band_pixels,
        .all_pixels = params.n_pixels};
    return group_norm_workspace_bytes(args.x) <= kScratchBytes ? group_norm(args, context.stream)
                                                               : cudaErrorMemoryAllocation;
}

cudaError_t run_put(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::PutParams>(y);
    const ggml_tensor* x = own::put_part(y);
    const size_t stride = y->nb[params.axis];
    return cudaMemcpy2DAsync(
        static_cast<char*>(y->data) + static_cast<size_t>(params.first) * stride, stride, x->data,
        x->nb[params.axis], own::put_bytes(x, params.axis), static_cast<size_t>(x->ne[params.axis]),
        cudaMemcpyDeviceToDevice, context.stream);
}

cudaError_t run_softmax(const Context& context, const ggml_tensor* y) {
    const auto params = params_of<own::SoftmaxParams>(y);
    return softmax_rows({.scores = floats_of(y->src[0]),
                         .probabilities = half_of(y),
                         .n_rows = y->ne[1],
                         .n = y->ne[0],
                         .factor = params.factor,
                         .gain = params.gain},
                        context.stream);
}

struct Entry {
    const OwnOperation* operation;
    Launch launch;
    bool (*takes)(const ggml_tensor* node) = nullptr;  // the types of a node; null: all it can have
};

constexpr Entry kTable[] = {
    {&own::kLinear, run_linear, takes_linear},
    {&own::kUnpack, run_unpack, takes_unpack},
    {&own::kModulate, run_norm},
    {&own::kRmsNorm, run_norm},
    {&own::kAddGated, run_add_gated},
    {&own::kSwiglu, run_swiglu},
    {&own::kRopeTable, run_rope_table},
    {&own::kJoinHeads, run_join_heads, takes_join_heads},
    {&own::kAttention, run_attention, takes_attention},
    {&own::kPlanesToHalf, run_planes_to_half},
    {&own::kPixelsToPlanes, run_pixels_to_planes},
    {&own::kToHalf, run_to_half},
    {&own::kPackFilter, run_pack_filter},
    {&own::kConv, run_conv},
    {&own::kMoments, run_moments},
    {&own::kGroupNorm, run_group_norm},
    {&own::kSoftmax, run_softmax},
    {&own::kPut, run_put},
    {&own::kAddLinear, run_add_linear, takes_add_linear},
    {&own::kOuterProduct, run_outer_product, takes_outer_product},
    {&own::kScaleRows, run_scale_rows, takes_scale_rows},
    {&own::kModulateGradient, run_modulate_gradient, takes_modulate_gradient},
    {&own::kSwigluGradient, run_swiglu_gradient, takes_swiglu_gradient},
    {&own::kQueryGradient, run_query_gradient, takes_attention_gradient},
    {&own::kKeyGradient, run_key_gradient, takes_attention_gradient},
    {&own::kHeadsGradient, run_heads_gradient, takes_heads_gradient},
};

}  // namespace

Launch find_kernel(const ggml_tensor* node) {
    if (!has_plain_form(node)) {
        return nullptr;
    }
    const OwnOperation* operation = operation_of(node);
    const auto found = std::find_if(std::begin(kTable), std::end(kTable), [&](const Entry& entry) {
        return entry.operation == operation;
    });
    const bool takes = found != std::end(kTable) && (found->takes == nullptr || found->takes(node));
    return takes ? found->launch : nullptr;
}

Launch find_kernel_of_both(const ggml_tensor* node, const ggml_tensor* next) {
    return fuses_gate_and_norm(node, next) ? run_add_gated_and_norm : nullptr;
}

}  // namespace flux2::cuda
