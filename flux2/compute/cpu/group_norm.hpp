// Group norm on CPUs for feature maps with contiguous channels.
#pragma once

#include "compute/graph.hpp"
#include "compute/plain/feature_map_nodes.hpp"

#include <ggml.h>

#include <cstdint>
#include <vector>

namespace flux2::cpu {

// [kNormGroups, 2] as own::moments says.
ggml_tensor* moments(Graph& g, ggml_tensor* x);

struct GroupNormOptions {
    bool silu = false;      // after the norm
    bool in_place = false;  // overwrite x: nobody may read it later
};

// x [channels, w, h], weight and bias [channels] -> the shape of x.
ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        const GroupNormOptions& options);
// With moments that were taken over a map of which x is a part.
ggml_tensor* group_norm(Graph& g, const own::GroupNormInput& in, const own::GroupNormParams& params,
                        bool in_place = false);

// What the norm does to each channel of a pixel: (x - mean) * scale + bias, then SiLU if asked for.
// For the node itself, and for convolutions that do it while they read x.
struct ChannelNorm {
    ChannelNorm(const own::GroupNormInput& in, const own::GroupNormParams& params);

    void apply(const float* from, int64_t n_pixels, float* to) const;

    std::vector<float> mean, scale, bias;
    bool silu;
};

}  // namespace flux2::cpu
