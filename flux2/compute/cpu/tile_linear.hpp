// y = W x in tiles of BF16 (compute/cpu/matrix_tiles) for matrices of any type but F32, read where
// they lie: a part at a time becomes BF16, so there is never a second copy. Sums are F32.
//
// Both factors are rounded to BF16. With F16 matrices both are sums of two numbers in BF16, whose
// product but for that of the second ones is computed: as precise as F16, at a third of the speed.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// Whether this CPU has the instructions and the matrix [in, out] the right type and size.
bool suits_tiles(const ggml_tensor* matrix);

// Says ahead that linear_in_tiles multiplies with such a matrix; it may have no memory yet.
void mark_for_tiles(ggml_tensor* matrix);
bool is_for_tiles(const ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_in_tiles(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
