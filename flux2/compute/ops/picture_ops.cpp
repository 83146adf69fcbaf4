#include "compute/ops/picture_ops.hpp"

#include "compute/cpu/attention.hpp"
#include "compute/cpu/direct_conv.hpp"
#include "compute/cpu/group_norm.hpp"
#include "compute/cpu/winograd.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/plain/picture_nodes.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <cmath>

namespace flux2 {
namespace {

bool is_stock(const Picture& x) {
    return x.form == PictureForm::stock;
}

bool is_cuda(const Picture& x) {
    return x.form == PictureForm::cuda;
}

// ---- Over ggml's operations; pictures are [w, h, channels] ----

ggml_tensor* per_channel(Graph& g, ggml_tensor* v) {
    return ggml_reshape_4d(g, v, 1, 1, v->ne[0], 1);
}

ggml_tensor* stock_conv(Graph& g, const Conv& w, ggml_tensor* x, int stride = 1) {
    const int pad = stride == 1 ? static_cast<int>(w.weight->ne[0] / 2) : 0;
    ggml_tensor* y = ggml_conv_2d_direct(g, w.weight, x, stride, stride, pad, pad, 1, 1);
    return ggml_add(g, y, per_channel(g, w.bias));
}

ggml_tensor* stock_group_norm(Graph& g, const GroupNorm& w, ggml_tensor* x,
                              int n_groups = cpu::kNormGroups, float eps = cpu::kNormEps) {
    ggml_tensor* y = ggml_group_norm(g, x, n_groups, eps);
    return ggml_add(g, ggml_mul(g, y, per_channel(g, w.weight)), per_channel(g, w.bias));
}

ggml_tensor* stock_group_norm_inplace(Graph& g, const GroupNorm& w, ggml_tensor* x) {
    ggml_tensor* y = ggml_group_norm_inplace(g, x, cpu::kNormGroups, cpu::kNormEps);
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

// ---- On CPUs; pictures are [channels, w, h] ----

ggml_tensor* cpu_conv(Graph& g, const Conv& w, ggml_tensor* x, ggml_tensor* skip = nullptr) {
    return w.weight->ne[0] == 1 ? cpu::direct_conv(g, w.weight, w.bias, x, skip, /*stride=*/1)
                                : cpu::winograd_conv(g, w.weight, w.bias, x, skip, /*scale=*/1);
}

ggml_tensor* cpu_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    const auto tokens = [&](ggml_tensor* x) {
        return ggml_reshape_3d(g, x, x->ne[0], /*heads=*/1, x->ne[1] * x->ne[2]);
    };
    ggml_tensor* y = cpu::attention(g, tokens(q), tokens(k), tokens(v));
    return ggml_reshape_3d(g, y, q->ne[0], q->ne[1], q->ne[2]);
}

// ---- On NVIDIA GPUs; pictures are [channels, w, h] ----

// What a convolution reads.
ggml_tensor* as_half(Graph& g, ggml_tensor* x) {
    return x->type == GGML_TYPE_F16 ? x : own::to_half(g, x);
}

ggml_tensor* as_f32(Graph& g, ggml_tensor* x) {
    return x->type == GGML_TYPE_F32
               ? x
               : ggml_scale(g, ggml_cast(g, x, GGML_TYPE_F32), 1 / own::kHalfScale);
}

Picture cuda_conv(Graph& g, const Conv& w, const Picture& x, ggml_tensor* skip,
                  own::ConvParams params) {
    params.kernel = static_cast<int32_t>(w.weight->ne[0]);
    return {own::conv(g, w.weight, w.bias, as_half(g, x.tensor), skip, params), x.form};
}

// Some queries at a time, so that their scores stay below a tenth of a gigabyte.
ggml_tensor* cuda_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    constexpr int64_t kMaxScores = 32 << 20;
    constexpr float kGain = 1024;  // keeps small probabilities out of F16's coarse end
    const int64_t width = q->ne[0];
    const int64_t n = q->ne[1] * q->ne[2];
    const auto tokens = [&](ggml_tensor* x) { return ggml_reshape_2d(g, as_half(g, x), width, n); };
    q = tokens(q);
    k = tokens(k);
    v = tokens(v);
    const float factor =
        1 / (own::kHalfScale * own::kHalfScale) / std::sqrt(static_cast<float>(width));
    const int64_t n_slice = std::clamp<int64_t>(kMaxScores / n, 1, n);
    ggml_tensor* result = nullptr;
    for (int64_t first = 0; first < n; first += n_slice) {
        ggml_tensor* slice = columns(g, q, first, std::min(n_slice, n - first));
        ggml_tensor* scores = own::linear(g, k, slice, GGML_TYPE_F32);  // [n, slice]
        ggml_tensor* weights = own::softmax(g, scores, {.factor = factor, .gain = kGain});
        ggml_tensor* part =
            own::linear_transposed(g, v, weights, GGML_TYPE_F32, 1 / (kGain * own::kHalfScale));
        result = result == nullptr ? part : ggml_concat(g, result, part, 1);
        g.expand(result);  // one slice after the other, not all scores first
    }
    return result;  // [width, n]
}

}  // namespace

PictureForm picture_form(const Backend& backend) {
    switch (backend.operations()) {
        case Operations::cpu:
            return PictureForm::cpu;
        case Operations::cuda:
            return PictureForm::cuda;
        case Operations::stock:
            break;
    }
    return PictureForm::stock;
}

Picture from_planes(Graph& g, ggml_tensor* planes, PictureForm form) {
    switch (form) {
        case PictureForm::cpu:
            return {ggml_cont(g, ggml_permute(g, planes, 1, 2, 0, 3)), form};
        case PictureForm::cuda:
            return {own::planes_to_half(g, planes), form};
        case PictureForm::stock:
            break;
    }
    return {planes, form};
}

ggml_tensor* to_planes(Graph& g, const Picture& x) {
    if (is_cuda(x)) {
        return own::pixels_to_planes(g, as_f32(g, x.tensor));
    }
    return is_stock(x) ? x.tensor : ggml_cont(g, ggml_permute(g, x.tensor, 2, 0, 1, 3));
}

Picture conv(Graph& g, const Conv& w, const Picture& x) {
    if (is_cuda(x)) {
        return cuda_conv(g, w, x, nullptr, {});
    }
    return {is_stock(x) ? stock_conv(g, w, x.tensor) : cpu_conv(g, w, x.tensor), x.form};
}

Picture conv_add(Graph& g, const Conv& w, const Picture& x, const Picture& skip) {
    if (is_cuda(x)) {
        return cuda_conv(g, w, x, skip.tensor, {});
    }
    return {is_stock(x) ? ggml_add(g, skip.tensor, stock_conv(g, w, x.tensor))
                        : cpu_conv(g, w, x.tensor, skip.tensor),
            x.form};
}

Picture conv_down(Graph& g, const Conv& w, const Picture& x) {
    constexpr int kStride = 2;
    if (is_cuda(x)) {
        return cuda_conv(g, w, x, nullptr, {.stride = kStride});
    }
    return {is_stock(x) ? stock_conv(g, w, ggml_pad(g, x.tensor, 1, 1, 0, 0), kStride)
                        : cpu::direct_conv(g, w.weight, w.bias, x.tensor, nullptr, kStride),
            x.form};
}

// A row and a column of zeros before the picture move its pixels under the kernel's centre; those
// behind it are not reached then.
Picture conv_down_centred(Graph& g, const Conv& w, const Picture& x) {
    constexpr int kStride = 2;
    if (is_stock(x)) {
        ggml_tensor* padded = ggml_pad_ext(g, x.tensor, 1, 0, 1, 0, 0, 0, 0, 0);
        return {stock_conv(g, w, padded, kStride), x.form};
    }
    ggml_tensor* padded = ggml_pad_ext(g, as_f32(g, x.tensor), 0, 0, 1, 0, 1, 0, 0, 0);
    return conv_down(g, w, {padded, x.form});
}

Picture conv_up(Graph& g, const Conv& w, const Picture& x) {
    constexpr int kScale = 2;
    if (is_cuda(x)) {
        return cuda_conv(g, w, x, nullptr, {.scale = kScale});
    }
    return {is_stock(x)
                ? stock_conv(g, w, ggml_upscale(g, x.tensor, kScale, GGML_SCALE_MODE_NEAREST))
                : cpu::winograd_conv(g, w.weight, w.bias, x.tensor, nullptr, kScale),
            x.form};
}

Picture group_norm(Graph& g, const GroupNorm& w, const Picture& x) {
    if (is_cuda(x)) {
        return {own::group_norm(g, w.weight, w.bias, x.tensor, /*silu=*/false), x.form};
    }
    return {is_stock(x) ? stock_group_norm(g, w, x.tensor)
                        : cpu::group_norm(g, w.weight, w.bias, x.tensor, {}),
            x.form};
}

Picture group_norm_silu(Graph& g, const GroupNorm& w, const Picture& x, bool in_place) {
    if (is_cuda(x)) {
        return {own::group_norm(g, w.weight, w.bias, x.tensor, /*silu=*/true), x.form};
    }
    if (!is_stock(x)) {
        return {
            cpu::group_norm(g, w.weight, w.bias, x.tensor, {.silu = true, .in_place = in_place}),
            x.form};
    }
    return {in_place ? ggml_silu_inplace(g, stock_group_norm_inplace(g, w, x.tensor))
                     : ggml_silu(g, stock_group_norm(g, w, x.tensor)),
            x.form};
}

Picture group_norm_relu(Graph& g, const GroupNorm& w, const Picture& x, int n_groups, float eps) {
    ggml_tensor* y = stock_group_norm(g, w, to_planes(g, x), n_groups, eps);
    return from_planes(g, ggml_relu(g, y), x.form);
}

Picture relu(Graph& g, const Picture& x) {
    return {ggml_relu(g, as_f32(g, x.tensor)), x.form};
}

Picture pixel_attention(Graph& g, const Picture& q, const Picture& k, const Picture& v) {
    if (is_cuda(q)) {
        ggml_tensor* y = cuda_attention(g, q.tensor, k.tensor, v.tensor);
        return {ggml_reshape_3d(g, y, q.tensor->ne[0], q.tensor->ne[1], q.tensor->ne[2]), q.form};
    }
    return {is_stock(q) ? stock_attention(g, q.tensor, k.tensor, v.tensor)
                        : cpu_attention(g, q.tensor, k.tensor, v.tensor),
            q.form};
}

}  // namespace flux2
