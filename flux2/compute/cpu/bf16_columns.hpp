// Rows of matrices as columns in BF16, for compute/cpu/matrix_tiles: four values at a time, those
// of other columns between them. A value is its type's, in F32, rounded to the nearest BF16.
#pragma once

#include <ggml.h>

#include <cstdint>

namespace flux2::cpu {

// Only where has_matrix_tiles().

// n floats, a multiple of 8; groups of four lie `step` values apart. What rounding took away goes
// to `rest`, likewise rounded, unless that is null.
void round_to_groups(const float* from, int64_t n, int64_t step, uint16_t* to, uint16_t* rest);

// n values of a row as files have it, whole blocks, into a column of a panel: groups of four lie
// kTileColumns groups apart.
using ExpandColumn = void (*)(const void* blocks, int64_t n, uint16_t* to);

// Null for types without code of their own: those are converted to F32 first.
ExpandColumn find_expand_column(ggml_type type);

}  // namespace flux2::cpu
