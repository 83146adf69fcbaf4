// Group norm on CPUs for feature maps with contiguous channels.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

struct GroupNormOptions {
    bool silu = false;      // after the norm
    bool in_place = false;  // overwrite x: nobody may read it later
};

// x [channels, w, h], weight and bias [channels] -> the shape of x.
ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        const GroupNormOptions& options);

}  // namespace flux2::cpu
