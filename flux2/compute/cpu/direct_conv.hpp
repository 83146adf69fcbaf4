// Convolution on CPUs as a matrix multiply over gathered pixels, a few at a time: for what
// compute/cpu/winograd does not do.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// filter [k, k, in, out] in F16 or F32, x [in, w, h] -> [out, w / stride, h / stride]. Either k is
// 1, or k is 3 and stride 2, with zeros to the right and below x. `skip`, of the result's
// shape, is added; may be null.
ggml_tensor* direct_conv(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                         ggml_tensor* skip, int32_t stride);

}  // namespace flux2::cpu
