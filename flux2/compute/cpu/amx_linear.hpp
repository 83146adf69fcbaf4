// y = W x for matrices in BF16 and Q8_0 that were repacked for compute/cpu/amx_tiles. Products are
// of BF16, sums F32.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstddef>
#include <span>

namespace flux2::cpu {

// Whether this CPU has the instructions and the matrix [in, out] the right type and size.
bool suits_amx(const ggml_tensor* matrix);

// Writes rows, as files have them, into the memory of such a matrix in its new layout. From here on
// only linear_amx can read it.
void repack_amx(std::span<const std::byte> rows, ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_amx(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
