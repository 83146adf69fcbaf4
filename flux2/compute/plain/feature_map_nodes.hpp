// Operations on feature maps as nodes of our own (compute/plain/own_node). For each there are its
// parameters and what makes a node of it in any form; the plain form is in feature_map_nodes.cpp.
// Feature maps are [channels, w, h]: in F32, or, as what the plain form of a convolution reads, in
// F16 times kHalfScale.
#pragma once

#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::own {

// F16 ends at 65504, and values inside the autoencoder go beyond.
constexpr float kHalfScale = 1.0f / 64;

constexpr int kNormGroups = 32;
constexpr float kNormEps = 1e-6f;

// Planes [w, h, channels] in F32 <-> feature maps. What convolutions read has channels in eights;
// those that are added are zero.
extern const OwnOperation kPlanesToHalf;
ggml_tensor* planes_to_half(Graph& g, ggml_tensor* planes);
extern const OwnOperation kPixelsToPlanes;
ggml_tensor* pixels_to_planes(Graph& g, ggml_tensor* x);

// F32 -> F16 times kHalfScale; x has channels in eights.
extern const OwnOperation kToHalf;
ggml_tensor* to_half(Graph& g, ggml_tensor* x);

// A filter [k, k, in, out] in F16 or F32 -> F16 [in, out, k * k], with `in` in eights.
extern const OwnOperation kPackFilter;
ggml_tensor* pack_filter(Graph& g, ggml_tensor* filter);

// conv(x) + bias + skip in F32; sources x, the filter as the form reads it, bias, skip. The plain
// form reads x in F16 and what pack_filter makes; others (compute/cpu) have their own order.
extern const OwnOperation kConv;
struct ConvParams {
    int32_t size = 3;    // of the filter, 1 or 3; with 3 there are zeros around x
    int32_t stride = 1;  // with 2 there are zeros to the right and below only
    int32_t scale = 1;   // with 2 every pixel of x counts as 2x2 pixels
};
struct ConvInput {
    ggml_tensor* x;
    ggml_tensor* packed_filter;
    ggml_tensor* bias;            // [out]
    ggml_tensor* skip = nullptr;  // of the result's shape
};
ggml_tensor* conv(Graph& g, const ConvInput& in, const ConvParams& params,
                  const NodeForm& form = {});

// Mean and sum of squared distances from it of each of kNormGroups groups of channels, over all
// pixels of x: F64 [kNormGroups, 2]. In F32 those of bands, joined, would give another scale than
// those of the whole map, and so other values in F16.
extern const OwnOperation kMoments;
struct MomentsParams {
    int64_t height = 0;  // of the map that x is some rows of: forms may add up in parts of it
};
ggml_tensor* moments(Graph& g, ggml_tensor* x, const MomentsParams& params);

// kNormGroups groups of channels; sources x, weight, bias, moments. The plain form gives F16 times
// kHalfScale.
extern const OwnOperation kGroupNorm;
struct GroupNormParams {
    bool silu = false;  // after the norm
    // What the moments [kNormGroups, 2, bands] were taken over: bands of this many pixels, and a
    // last one of what is left.
    int64_t n_pixels = 0;
    int64_t band_pixels = 0;
};
struct GroupNormInput {
    ggml_tensor *x, *weight, *bias;
    ggml_tensor* moments = nullptr;  // null: those of x
};
ggml_tensor* group_norm(Graph& g, const GroupNormInput& in, const GroupNormParams& params,
                        const NodeForm& form = {.type = GGML_TYPE_F16});

// Rows of scores [n, n_rows] -> softmax(scores * factor) * gain in F16
extern const OwnOperation kSoftmax;
struct SoftmaxParams {
    float factor, gain;
};
ggml_tensor* softmax(Graph& g, ggml_tensor* scores, const SoftmaxParams& params);

}  // namespace flux2::own
