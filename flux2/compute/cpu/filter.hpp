// What both ways to convolve on a CPU share: reading filters.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::cpu {

// The weights of 16 output channels, one after the other, as F32. filter [kw, kh, in, out] in F16
// or F32; channels past the last are zeros.
void read_panel(const ggml_tensor* filter, int64_t panel, float* to);

// filter [kw, kh, in, out] -> panels [16, kw * kh * in, out / 16], rounded up.
ggml_tensor* pack_filter(Graph& g, ggml_tensor* filter);

}  // namespace flux2::cpu
