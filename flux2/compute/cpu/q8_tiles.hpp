// Rows times Q8_0 matrices for CPUs whose instructions multiply small matrices of 8-bit integers
// (smmla, as in compute/cpu/matrix_tiles). Both sides go in blocks of 32 values with a scale of
// their own: rows in tiles of 8, columns in panels of 8; eight values of a row or column, what an
// instruction takes, are contiguous.
#pragma once

#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kQ8Rows = 8;
constexpr int64_t kQ8Columns = 8;
constexpr int64_t kQ8Values = 32;  // of a block
constexpr int64_t kQ8Group = 8;
// A block of a panel: values [4][8 columns][8], scales in F16 [8]; as many bytes as in Q8_0.
constexpr int64_t kQ8PanelBytes = kQ8Columns * (kQ8Values + 2);
// A block of a tile: values [4][8 rows][8], scales in F32 [8][2], each twice.
constexpr int64_t kQ8TileBytes = kQ8Rows * (kQ8Values + 8);

struct Q8Tiles {
    const int8_t* tile;
    const int8_t* panel;
    int64_t n_blocks;
    float* results;  // 8 rows of 8
    int64_t stride;  // floats from row to row
    bool adds;       // to what `results` holds
};

// Only where has_matrix_tiles().
void multiply(const Q8Tiles& m);

}  // namespace flux2::cpu
