// The error that a type causes in the output of a matrix, measured on random inputs.
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flux2::convert {

// Number of inputs per matrix.
inline constexpr size_t kInputs = 16;

// The types to choose among for rows of this length, smallest first; empty when no block type fits.
std::vector<TensorType> candidate_types(int64_t row_elements);

// Rows at even distances in a matrix, concatenated: at most 256 rows and a million values.
std::vector<float> sample_rows(const ModelTensor& matrix);

// Random inputs, always the same, with the statistics of this matrix's inputs in a block: normal
// numbers after a norm or attention, silu(a) * b of two of them after SwiGLU. Stored by column:
// kInputs values for each.
std::vector<float> typical_inputs(const std::string& name, const Shape& shape);

// ||(W - Q) x|| / ||W x|| over all inputs x, where Q is W in this type. `rows` holds whole rows of
// W, finite values only.
double output_error(TensorType type, std::span<const float> rows, int64_t row_elements,
                    std::span<const float> inputs);

}  // namespace flux2::convert
