// Weights stored as codes whose scales are in other tensors: FP8, MXFP8, NVFP4 and INT8 as
// safetensors files have them. Which tensor is stored how is decided in checkpoints/weight_schemes.
#pragma once

#include "formats/tensor_directory.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// One scale for each block of a matrix.
struct ScaleGrid {
    TensorType type = TensorType::f32;
    std::span<const std::byte> bytes;
    int64_t block_rows = 1, block_columns = 1;  // of the matrix, for each scale
    int64_t columns = 1;                        // blocks side by side
    // In the order of cuBLAS: tiles of 128 rows by 4 columns, whose rows are interleaved by 32.
    bool tiled = false;

    float at(int64_t block_row, int64_t block_column) const;
};

// A matrix [in, out]; of tensors with more dimensions `out` is the slowest and `in` all others.
struct ScaledMatrix {
    TensorType type = TensorType::scaled_f8_e4m3;
    Shape shape;
    std::span<const std::byte> codes;
    bool high_nibble_first = false;  // NVFP4: which half of a byte comes first
    ScaleGrid scales;
    float factor = 1;                   // of all values
    std::vector<float> column_factors;  // of the columns; empty: 1

    int64_t rows() const;
    int64_t columns() const { return shape.elements() / rows(); }
    // The values from element `first` on.
    void read_f32(int64_t first, std::span<float> out) const;
    // "FP8 (E4M3) with a scale per row"
    std::string scheme() const;
};

}  // namespace flux2
