// y = W x for Q8_0 matrices that were repacked for compute/cpu/q8_tiles: a third faster than ggml's
// own layout for the same instructions, at the same size.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstddef>
#include <span>

namespace flux2::cpu {

// Whether this CPU has the instructions and the matrix [in, out] the right type and size.
bool suits_q8_tiles(const ggml_tensor* matrix);

// Writes rows of Q8_0 blocks, as files have them, into the memory of such a matrix in its new
// layout. From here on only linear_q8 can read it.
void repack_q8(std::span<const std::byte> blocks, ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32. Values of x are
// rounded to 8 bits, a scale for every 32 of them, as ggml does.
ggml_tensor* linear_q8(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
