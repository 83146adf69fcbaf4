// What a type costs a matrix: the error of its output on random inputs.
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flux2::convert {

// How many inputs a matrix is tried on.
inline constexpr size_t kInputs = 16;

// The types to choose among for rows of this length, smallest first; none when blocks do not fit.
std::vector<TensorType> candidate_types(int64_t row_elements);

// Rows spread evenly over a matrix, one after another: 256 at most, and a million values at most.
std::vector<float> sample_rows(const ModelTensor& matrix);

// Random inputs with the statistics of what this matrix of the blocks is given, always the same
// ones: normal numbers behind a norm or attention, silu(a) * b of two of them behind SwiGLU. Column
// by column: kInputs values for each.
std::vector<float> typical_inputs(const std::string& name, const Shape& shape);

// ||(W - Q) x|| / ||W x|| over all inputs x, where Q is W in this type. `rows` holds whole rows of
// W, finite values only.
double output_error(TensorType type, std::span<const float> rows, int64_t row_elements,
                    std::span<const float> inputs);

}  // namespace flux2::convert
