// Filters of convolutions as AMX tiles (compute/cpu/amx_tiles).
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// [size, size, in, out] in F16, size 1 or 3 -> BF16 [512, 4 * steps + 1, out / 32], rounded up. A
// step is 32 input channels at one position; positions count first. Of every 32 output channels:
// the tiles of 16 of them, rounded, those of the other 16, what was left of both likewise, and a
// last tile whose first number tells whether anything was left; otherwise those tiles are not made.
ggml_tensor* amx_filter(Graph& g, ggml_tensor* filter);

}  // namespace flux2::cpu
