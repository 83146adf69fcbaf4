#include "compute/ops/feature_map_ops.hpp"

#include "compute/cpu/amx_conv.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/attention.hpp"
#include "compute/cpu/direct_conv.hpp"
#include "compute/cpu/group_norm.hpp"
#include "compute/cpu/winograd.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/plain/put_node.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <cmath>

namespace flux2 {
namespace {

bool is_stock(const Graph& g) {
    return g.form().operations == Operations::stock;
}

bool is_for_cuda(const Graph& g) {
    return g.form().operations == Operations::cuda;
}

// ---- Over ggml's operations; feature maps are [w, h, channels] ----

ggml_tensor* per_channel(Graph& g, ggml_tensor* v) {
    return ggml_reshape_4d(g, v, 1, 1, v->ne[0], 1);
}

// Rows and columns of zeros around a map whose pixels lie under the filter's centre.
int centred_padding(const Conv& w) {
    return static_cast<int>(w.weight->ne[0] / 2);
}

ggml_tensor* stock_conv(Graph& g, const Conv& w, ggml_tensor* x, int stride, int pad) {
    ggml_tensor* y = ggml_conv_2d_direct(g, w.weight, x, stride, stride, pad, pad, 1, 1);
    return ggml_add(g, y, per_channel(g, w.bias));
}

ggml_tensor* stock_conv(Graph& g, const Conv& w, ggml_tensor* x) {
    return stock_conv(g, w, x, /*stride=*/1, centred_padding(w));
}

ggml_tensor* stock_group_norm(Graph& g, const GroupNorm& w, ggml_tensor* x,
                              int n_groups = own::kNormGroups, float eps = own::kNormEps) {
    ggml_tensor* y = ggml_group_norm(g, x, n_groups, eps);
    return ggml_add(g, ggml_mul(g, y, per_channel(g, w.weight)), per_channel(g, w.bias));
}

ggml_tensor* stock_group_norm_inplace(Graph& g, const GroupNorm& w, ggml_tensor* x) {
    ggml_tensor* y = ggml_group_norm_inplace(g, x, own::kNormGroups, own::kNormEps);
    y = ggml_mul_inplace(g, y, per_channel(g, w.weight));
    return ggml_add_inplace(g, y, per_channel(g, w.bias));
}

ggml_tensor* stock_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    // [w, h, channels] -> [channels, w * h]
    const auto tokens = [&](ggml_tensor* x) {
        ggml_tensor* rows = ggml_reshape_2d(g, x, x->ne[0] * x->ne[1], x->ne[2]);
        return ggml_cont(g, ggml_transpose(g, rows));
    };
    ggml_tensor* y = sliced_attention(g, tokens(q), tokens(k), tokens(v));
    return ggml_reshape_3d(g, ggml_cont(g, ggml_transpose(g, y)), q->ne[0], q->ne[1], q->ne[2]);
}

// ---- On CPUs; feature maps are [channels, w, h] ----

// F32 filters ask for F32.
bool suits_amx(const Conv& w) {
    return cpu::has_amx() && w.weight->type == GGML_TYPE_F16;
}

ggml_tensor* cpu_conv(Graph& g, const Conv& w, ggml_tensor* x, ggml_tensor* skip = nullptr,
                      int32_t scale = 1) {
    if (suits_amx(w)) {
        return cpu::amx_conv(g, {.filter = w.weight, .bias = w.bias, .x = x, .skip = skip}, scale);
    }
    return w.weight->ne[0] == 1 ? cpu::direct_conv(g, w.weight, w.bias, x, skip, /*stride=*/1)
                                : cpu::winograd_conv(g, w.weight, w.bias, x, skip, scale);
}

ggml_tensor* cpu_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    const auto tokens = [&](ggml_tensor* x) {
        return ggml_reshape_3d(g, x, x->ne[0], /*heads=*/1, x->ne[1] * x->ne[2]);
    };
    ggml_tensor* y = cpu::attention(g, tokens(q), tokens(k), tokens(v));
    return ggml_reshape_3d(g, y, q->ne[0], q->ne[1], q->ne[2]);
}

// ---- On NVIDIA GPUs; feature maps are [channels, w, h] ----

// What a convolution reads.
ggml_tensor* as_half(Graph& g, ggml_tensor* x) {
    return x->type == GGML_TYPE_F16 ? x : own::to_half(g, x);
}

ggml_tensor* as_f32(Graph& g, ggml_tensor* x) {
    return x->type == GGML_TYPE_F32
               ? x
               : ggml_scale(g, ggml_cast(g, x, GGML_TYPE_F32), 1 / own::kHalfScale);
}

FeatureMap cuda_conv(Graph& g, const Conv& w, const FeatureMap& x, ggml_tensor* skip,
                     MapPrecision precision, own::ConvParams params) {
    params.size = static_cast<int32_t>(w.weight->ne[0]);
    ggml_tensor* packed = g.made_once(w.weight, [&] { return own::pack_filter(g, w.weight); });
    const bool half = precision == MapPrecision::compact && g.form().half_bands;
    return {own::conv(
        g, {.x = as_half(g, x.tensor), .packed_filter = packed, .bias = w.bias, .skip = skip},
        params, {.type = half ? GGML_TYPE_F16 : GGML_TYPE_F32})};
}

// Some queries at a time, so that their scores take about a tenth of a gigabyte.
ggml_tensor* cuda_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    constexpr int64_t kMaxScores = 32 << 20;
    constexpr float kGain = 1024;  // keeps small probabilities out of F16's denormals
    const int64_t width = q->ne[0];
    const int64_t n = q->ne[1] * q->ne[2];
    const auto tokens = [&](ggml_tensor* x) { return ggml_reshape_2d(g, as_half(g, x), width, n); };
    q = tokens(q);
    k = tokens(k);
    v = tokens(v);
    const float factor =
        1 / (own::kHalfScale * own::kHalfScale) / std::sqrt(static_cast<float>(width));
    constexpr int64_t kFewestQueries = 512;  // fewer would leave the GPU idle
    const int64_t n_slice = std::min(n, std::max(kFewestQueries, kMaxScores / n));
    ggml_tensor* result = nullptr;
    for (int64_t first = 0; first < n; first += n_slice) {
        const int64_t n_queries = std::min(n_slice, n - first);
        ggml_tensor* slice = columns(g, q, first, n_queries);
        ggml_tensor* scores = own::linear(g, k, slice, {GGML_TYPE_F32});  // [n, slice]
        ggml_tensor* weights = own::softmax(g, scores, {.factor = factor, .gain = kGain});
        ggml_tensor* part =
            own::linear(g, v, weights, {GGML_TYPE_F32},
                        {.transposed = true, .factor = 1 / (kGain * own::kHalfScale)});
        const own::PutParams place = {.axis = 1, .first = first};
        result = result == nullptr ? own::begin_put(g, part, n, place)
                                   : own::put(g, result, part, place);
        g.expand(result);  // one slice after the other, not all scores first
    }
    return result;  // [width, n]
}

}  // namespace

Form choose_feature_map_form(const Backend& backend, bool suits_cuda) {
    const Operations best = backend.operations();
    return {.operations = best == Operations::cuda && !suits_cuda ? Operations::stock : best};
}

FeatureMap from_planes(Graph& g, ggml_tensor* planes) {
    if (is_for_cuda(g)) {
        return {own::planes_to_half(g, planes)};
    }
    return {is_stock(g) ? planes : ggml_cont(g, ggml_permute(g, planes, 1, 2, 0, 3))};
}

ggml_tensor* to_planes(Graph& g, const FeatureMap& x) {
    if (is_for_cuda(g)) {
        return own::pixels_to_planes(g, as_f32(g, x.tensor));
    }
    return is_stock(g) ? x.tensor : ggml_cont(g, ggml_permute(g, x.tensor, 2, 0, 1, 3));
}

FeatureMap conv(Graph& g, const Conv& w, const FeatureMap& x, MapPrecision precision) {
    if (is_for_cuda(g)) {
        return cuda_conv(g, w, x, nullptr, precision, {});
    }
    return {is_stock(g) ? stock_conv(g, w, x.tensor) : cpu_conv(g, w, x.tensor)};
}

FeatureMap conv_add(Graph& g, const Conv& w, const FeatureMap& x, const FeatureMap& skip,
                    MapPrecision precision) {
    if (is_for_cuda(g)) {
        return cuda_conv(g, w, x, skip.tensor, precision, {});
    }
    return {is_stock(g) ? ggml_add(g, skip.tensor, stock_conv(g, w, x.tensor))
                        : cpu_conv(g, w, x.tensor, skip.tensor)};
}

FeatureMap conv_of_norm(Graph& g, const Conv& w, const GroupNorm& norm, const FeatureMap& x,
                        const ConvOfNormOptions& options) {
    if (!is_stock(g) && !is_for_cuda(g) && suits_amx(w)) {
        return {cpu::amx_conv(g,
                              {.filter = w.weight,
                               .bias = w.bias,
                               .x = x.tensor,
                               .skip = options.skip.tensor,
                               .norm_weight = norm.weight,
                               .norm_bias = norm.bias},
                              /*scale=*/1)};
    }
    const FeatureMap y = group_norm_silu(g, norm, x, options.overwrites_x);
    return options.skip.tensor != nullptr ? conv_add(g, w, y, options.skip) : conv(g, w, y);
}

FeatureMap conv_down(Graph& g, const Conv& w, const FeatureMap& x, MapPrecision precision) {
    constexpr int kStride = 2;
    if (is_for_cuda(g)) {
        return cuda_conv(g, w, x, nullptr, precision, {.stride = kStride});
    }
    return {is_stock(g) ? stock_conv(g, w, ggml_pad(g, x.tensor, 1, 1, 0, 0), kStride, /*pad=*/0)
                        : cpu::direct_conv(g, w.weight, w.bias, x.tensor, nullptr, kStride)};
}

// A row and a column of zeros before x move its pixels under the filter's centre; those
// behind it are not reached then. ggml's convolution adds them itself: its Metal backend does not
// pad before a tensor.
FeatureMap conv_down_centred(Graph& g, const Conv& w, const FeatureMap& x, MapPrecision precision) {
    constexpr int kStride = 2;
    if (is_stock(g)) {
        return {stock_conv(g, w, x.tensor, kStride, centred_padding(w))};
    }
    ggml_tensor* padded = ggml_pad_ext(g, as_f32(g, x.tensor), 0, 0, 1, 0, 1, 0, 0, 0);
    return conv_down(g, w, {padded}, precision);
}

FeatureMap conv_up(Graph& g, const Conv& w, const FeatureMap& x, MapPrecision precision) {
    constexpr int kScale = 2;
    if (is_for_cuda(g)) {
        return cuda_conv(g, w, x, nullptr, precision, {.scale = kScale});
    }
    return {is_stock(g)
                ? stock_conv(g, w, ggml_upscale(g, x.tensor, kScale, GGML_SCALE_MODE_NEAREST))
                : cpu_conv(g, w, x.tensor, nullptr, kScale)};
}

FeatureMap group_norm(Graph& g, const GroupNorm& w, const FeatureMap& x) {
    if (is_for_cuda(g)) {
        return {own::group_norm(g, {x.tensor, w.weight, w.bias}, {})};
    }
    return {is_stock(g) ? stock_group_norm(g, w, x.tensor)
                        : cpu::group_norm(g, w.weight, w.bias, x.tensor, {})};
}

FeatureMap group_norm_silu(Graph& g, const GroupNorm& w, const FeatureMap& x, bool in_place) {
    if (is_for_cuda(g)) {
        return {own::group_norm(g, {x.tensor, w.weight, w.bias}, {.silu = true})};
    }
    if (!is_stock(g)) {
        return {
            cpu::group_norm(g, w.weight, w.bias, x.tensor, {.silu = true, .in_place = in_place})};
    }
    return {in_place ? ggml_silu_inplace(g, stock_group_norm_inplace(g, w, x.tensor))
                     : ggml_silu(g, stock_group_norm(g, w, x.tensor))};
}

ggml_tensor* moments(Graph& g, const FeatureMap& x, int64_t height) {
    return is_for_cuda(g) ? own::moments(g, x.tensor, {.height = height})
                          : cpu::moments(g, x.tensor);
}

FeatureMap group_norm_silu(Graph& g, const GroupNorm& w, const FeatureMap& x,
                           const Moments& moments) {
    const own::GroupNormInput in = {x.tensor, w.weight, w.bias, moments.of_bands};
    const own::GroupNormParams params = {
        .silu = true, .n_pixels = moments.n_pixels, .band_pixels = moments.band_pixels};
    return {is_for_cuda(g) ? own::group_norm(g, in, params) : cpu::group_norm(g, in, params)};
}

FeatureMap group_norm_relu(Graph& g, const GroupNorm& w, const FeatureMap& x, int n_groups,
                           float eps) {
    ggml_tensor* y = stock_group_norm(g, w, to_planes(g, x), n_groups, eps);
    return from_planes(g, ggml_relu(g, y));
}

FeatureMap relu(Graph& g, const FeatureMap& x) {
    return {ggml_relu(g, as_f32(g, x.tensor))};
}

FeatureMap pixel_attention(Graph& g, const FeatureMap& q, const FeatureMap& k,
                           const FeatureMap& v) {
    if (is_for_cuda(g)) {
        ggml_tensor* y = cuda_attention(g, q.tensor, k.tensor, v.tensor);
        return {ggml_reshape_3d(g, y, q.tensor->ne[0], q.tensor->ne[1], q.tensor->ne[2])};
    }
    return {is_stock(g) ? stock_attention(g, q.tensor, k.tensor, v.tensor)
                        : cpu_attention(g, q.tensor, k.tensor, v.tensor)};
}

}  // namespace flux2
