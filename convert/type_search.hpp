// Which candidate each matrix gets, under a limit on errors or on bytes.
#pragma once

#include "formats/tensor_type.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flux2::convert {

struct Candidate {
    TensorType type = TensorType::f32;
    uint64_t bytes = 0;  // in the file, padding included
    double error = 0;    // of the matrix's output, relative
};

struct MeasuredMatrix {
    std::string name;
    double weight = 1;                  // what its squared error counts for
    std::vector<Candidate> candidates;  // smallest first, at least one
};

// Both searches return the index of a candidate for each matrix.
using Selection = std::vector<size_t>;

// The smallest candidate with at most this error. Throws bad_argument when a matrix has none,
// naming the worst one and the error that can be had.
Selection search_by_error(const std::vector<MeasuredMatrix>& matrices, double max_error);

// The least weighted sum of squared errors that a greedy walk finds in `bytes`: from the smallest
// candidates on, the step that takes most off the sum per byte comes first, and a step that does
// not fit ends its matrix's way. More bytes never give a larger sum. `bytes` must hold the smallest
// candidates.
Selection search_by_size(const std::vector<MeasuredMatrix>& matrices, uint64_t bytes);

uint64_t least_bytes(const std::vector<MeasuredMatrix>& matrices);

// The root of the weighted mean of squared errors.
double mean_error(const std::vector<MeasuredMatrix>& matrices, const Selection& selection);

}  // namespace flux2::convert
