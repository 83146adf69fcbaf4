// What AMX tiles (compute/cpu/amx_tiles) are made from, and the softmax between the two multiplies
// of attention: AVX-512, which every CPU with AMX has.
#pragma once

#include "compute/cpu/amx_tiles.hpp"

#include <cstdint>

namespace flux2::cpu {

// 16 rows of floats, `stride` apart -> n_tiles tiles on the left. Only the first n_rows are read,
// the others become zeros.
void make_amx_rows(const float* from, int64_t stride, int64_t n_rows, int64_t n_tiles,
                   uint16_t* tiles);

// Tiles on the right from 8-bit values in the same order, and the scales of the 16 columns in F16.
constexpr int64_t kAmxQ8Bytes = kAmxTileSize + 2 * kAmxColumns;  // as many as 16 blocks of Q8_0
void expand_amx_q8(const int8_t* packed, int64_t n_tiles, uint16_t* tiles);

// A vector in 16 bits: values rounded to BF16, and what that left, likewise. Each part goes to one
// row of n tiles on the left; `rest` are the tiles of the second.
void split_amx_row(const float* from, int64_t width, int64_t row, uint16_t* tiles, uint16_t* rest);
// The same as a column of tiles on the right.
void split_amx_column(const float* from, int64_t width, int64_t column, uint16_t* tiles,
                      uint16_t* rest);

// 32 rows of floats -> a tile on the right of their first n_columns columns, at most 16. A row that
// is null, and columns beyond, become zeros.
void make_amx_values(const float* const* rows, int64_t n_columns, uint16_t* tile);

// The softmax of a query whose scores arrive in blocks: weights are 2^(score - the highest so far),
// and what was summed up before a higher one came is scaled down.
struct AmxSoftmax {
    float highest = -1e30f;
    float sum = 0;

    // n scores, a multiple of 32, of which those from n_seen on do not count; they are times
    // `scale` and, where there is a mask, plus what it holds. Their weights go to a row of tiles on
    // the left. Returns the factor for everything before.
    float add(float* scores, int64_t n, int64_t n_seen, float scale, const float* mask, int64_t row,
              uint16_t* weights);
};

}  // namespace flux2::cpu
