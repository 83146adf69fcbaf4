// y = W x for matrices of any type but F32, read where they lie: a tile at a time is converted, so
// there is never a second copy. Sums are F32.
//
// Arm CPUs with instructions for it (compute/cpu/matrix_tiles) and x86 CPUs with AMX
// (compute/cpu/amx_linear) multiply in BF16: both factors are rounded. With F16 matrices both are
// sums of two numbers in BF16, whose product but for that of the second ones is computed: as
// precise as F16, at a third of the speed. Other CPUs multiply types of few bits as integers
// (compute/cpu/code_linear), and others in F32 (compute/cpu/unpacked_linear) where nothing is
// faster.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// Whether this CPU has the instructions and the matrix [in, out] the right type and size.
bool suits_tiles(const ggml_tensor* matrix);

// "BF16 tiles", "8-bit tiles", "16-bit tiles" (integers) or "F32 tiles": as what this CPU
// multiplies such a matrix.
const char* tiles_name(const ggml_tensor* matrix);

// Says ahead that linear_in_tiles multiplies with such a matrix; it may have no memory yet.
void mark_for_tiles(ggml_tensor* matrix);
bool is_for_tiles(const ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_in_tiles(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
