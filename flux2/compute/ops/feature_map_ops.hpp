// What convolutional networks do with feature maps, in three forms, which a graph's Form chooses
// from: ggml's own operations on planes, which run on every device; nodes of our own
// (compute/plain/feature_map_nodes) as CPUs (compute/cpu) and NVIDIA GPUs (compute/cuda) compute
// them, which are many times faster and need the channels of a pixel to be contiguous.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2 {

// How a convolutional network is computed best. `suits_cuda`: its channels and types are such that
// the nodes on NVIDIA GPUs take it.
Form choose_feature_map_form(const Backend& backend, bool suits_cuda);

// The pixels or features of a picture inside a network, in the order of its graph's form: [w, h,
// channels] for ggml's operations, else [channels, w, h]; on NVIDIA GPUs in F16 where only
// convolutions read it. Callers never ask.
struct FeatureMap {
    ggml_tensor* tensor = nullptr;
};

// Between feature maps and the planes [w, h, channels] of a graph's inputs and outputs.
FeatureMap from_planes(Graph& g, ggml_tensor* planes);
ggml_tensor* to_planes(Graph& g, const FeatureMap& x);

// Weight [k, k, in, out] in F16 or F32 with k 1 or 3, bias [out].
struct Conv {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};
// How a convolution gives its result.
enum class MapPrecision {
    f32,
    compact,  // for a map that is kept in bands: in F16 where the graph's form has half_bands
};
// The result has the size of x, which has zeros around it.
FeatureMap conv(Graph& g, const Conv& w, const FeatureMap& x,
                MapPrecision precision = MapPrecision::f32);
// skip + conv(x)
FeatureMap conv_add(Graph& g, const Conv& w, const FeatureMap& x, const FeatureMap& skip,
                    MapPrecision precision = MapPrecision::f32);
// 3x3, halving the size: zeros on the right and at the bottom only.
FeatureMap conv_down(Graph& g, const Conv& w, const FeatureMap& x,
                     MapPrecision precision = MapPrecision::f32);
// The same with zeros on the left and at the top instead; sides are even.
FeatureMap conv_down_centred(Graph& g, const Conv& w, const FeatureMap& x,
                             MapPrecision precision = MapPrecision::f32);
// 3x3 over x with every pixel doubled both ways.
FeatureMap conv_up(Graph& g, const Conv& w, const FeatureMap& x,
                   MapPrecision precision = MapPrecision::f32);

struct GroupNorm {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};
// 32 groups, eps 1e-6.
FeatureMap group_norm(Graph& g, const GroupNorm& w, const FeatureMap& x);
// Then x * sigmoid(x). With in_place x's memory is overwritten: nobody may read it later.
FeatureMap group_norm_silu(Graph& g, const GroupNorm& w, const FeatureMap& x,
                           bool in_place = false);

// conv(group_norm_silu(x)) + skip, where a device can in one node.
struct ConvOfNormOptions {
    FeatureMap skip = {};       // may be empty
    bool overwrites_x = false;  // nobody may read it later
};
FeatureMap conv_of_norm(Graph& g, const Conv& w, const GroupNorm& norm, const FeatureMap& x,
                        const ConvOfNormOptions& options = {});

// What group norms need to know of a feature map: not for graphs of ggml's operations.
struct Moments {
    ggml_tensor* of_bands = nullptr;  // F64 [groups, 2, bands]
    int64_t n_pixels = 0;             // of the whole map
    int64_t band_pixels = 0;          // of all bands but the last
};
// Of x, which is some rows of a map of this height.
ggml_tensor* moments(Graph& g, const FeatureMap& x, int64_t height);
// The same norm of a part of the map that the moments were taken of.
FeatureMap group_norm_silu(Graph& g, const GroupNorm& w, const FeatureMap& x,
                           const Moments& moments);

// Another division into groups, then max(x, 0). For small feature maps: they become planes and
// back.
FeatureMap group_norm_relu(Graph& g, const GroupNorm& w, const FeatureMap& x, int n_groups,
                           float eps);
FeatureMap relu(Graph& g, const FeatureMap& x);

// Every pixel attends to all pixels, with one head as wide as there are channels.
FeatureMap pixel_attention(Graph& g, const FeatureMap& q, const FeatureMap& k, const FeatureMap& v);

}  // namespace flux2
