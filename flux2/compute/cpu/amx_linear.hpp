// y = W x in AMX tiles (compute/cpu/amx_tiles). Products are of BF16, sums F32. Matrices in BF16
// and Q8_0 are repacked for it; others are read where they lie, a part at a time becoming tiles.
// With F16 ones both factors are sums of two numbers in BF16, as in compute/cpu/tile_linear.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstddef>
#include <span>

namespace flux2::cpu {

// Whether this CPU has the instructions and the matrix [in, out] the right type and size.
bool suits_amx(const ggml_tensor* matrix);

// Rows that one tile holds: they are repacked together.
int64_t amx_rows_together();
// Writes rows from first_row on, as files have them, into the memory of such a matrix in its new
// layout; both are multiples of amx_rows_together(). From here on only linear_amx can read it.
void repack_amx(std::span<const std::byte> rows, int64_t first_row, ggml_tensor* matrix);

// Whether this CPU multiplies such a matrix as it lies, which is of another type.
bool suits_amx_in_place(const ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_amx(Graph& g, ggml_tensor* w, ggml_tensor* x);
ggml_tensor* linear_amx_in_place(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
