// Operations on pictures as nodes of our own (compute/plain/own_node). Pictures are [channels, w,
// h]: in F32, or as what a convolution reads, in F16 times kHalfScale. The functions behind them
// are plain C++: what a kernel must agree with.
#pragma once

#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::own {

// F16 ends at 65504, and pictures inside the autoencoder go beyond.
constexpr float kHalfScale = 1.0f / 64;

// Planes [w, h, channels] in F32 <-> pictures. What convolutions read has channels in eights; those
// that are added are zero.
ggml_tensor* planes_to_half(Graph& g, ggml_tensor* planes);
void planes_to_half_on_cpu(ggml_tensor* y, int ith, int nth, void*);
ggml_tensor* pixels_to_planes(Graph& g, ggml_tensor* x);
void pixels_to_planes_on_cpu(ggml_tensor* y, int ith, int nth, void*);

// F32 -> F16 times kHalfScale; x has channels in eights.
ggml_tensor* to_half(Graph& g, ggml_tensor* x);
void to_half_on_cpu(ggml_tensor* y, int ith, int nth, void*);

// [k, k, in, out] in F16 or F32 -> F16 [in, out, k * k], with `in` in eights.
ggml_tensor* pack_kernel(Graph& g, ggml_tensor* kernel);
void pack_kernel_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct ConvParams {
    int32_t kernel = 3;  // 1 or 3; with 3 there are zeros around x
    int32_t stride = 1;  // with 2 there are zeros to the right and below only
    int32_t scale = 1;   // with 2 every pixel of x counts as 2x2 pixels
};
// conv(x) + bias + skip in F32; x in F16, skip may be null. Sources x, the packed kernel, bias,
// skip
ggml_tensor* conv(Graph& g, ggml_tensor* kernel, ggml_tensor* bias, ggml_tensor* x,
                  ggml_tensor* skip, const ConvParams& params);
void conv_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct GroupNormParams {
    bool silu;  // after the norm
};
// 32 groups, eps 1e-6; F32 -> F16. Sources x, weight, bias
ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        bool silu);
void group_norm_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct SoftmaxParams {
    float factor, gain;
};
// Rows of scores [n, n_rows] -> softmax(scores * factor) * gain in F16
ggml_tensor* softmax(Graph& g, ggml_tensor* scores, const SoftmaxParams& params);
void softmax_on_cpu(ggml_tensor* y, int ith, int nth, void*);

}  // namespace flux2::own
