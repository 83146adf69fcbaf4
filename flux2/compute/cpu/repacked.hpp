// Matrices that we repack ourselves for the instructions of this CPU: as amx_linear has them.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace flux2::cpu {

// Whether one of them is for this CPU, and the type and size of the matrix [in, out].
bool suits_repacking(const ggml_tensor* matrix);
// Says ahead that such a matrix will be repacked; it may have no memory yet.
void mark_repacked(ggml_tensor* matrix);
bool is_repacked(const ggml_tensor* matrix);
// Of a marked matrix: what its layout is called.
const char* layout_name(const ggml_tensor* matrix);
// How many rows of a marked matrix are repacked together.
int64_t rows_together(const ggml_tensor* matrix);
// Writes rows from first_row on, as files have them, into the memory of a marked matrix; both are
// multiples of rows_together().
void repack(std::span<const std::byte> rows, int64_t first_row, ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_repacked(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
