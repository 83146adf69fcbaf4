// Chooses a candidate type for each matrix, within a limit on errors or on bytes.
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
    double error = 0;    // relative error of the matrix's output
};

struct MeasuredMatrix {
    std::string name;
    double weight = 1;                  // factor of its squared error in the sum
    std::vector<Candidate> candidates;  // smallest first, at least one
};

// Both searches return the index of a candidate for each matrix.
using Selection = std::vector<size_t>;

// The smallest candidate with at most this error. Throws bad_argument when a matrix has none,
// naming the worst one and the smallest possible error.
Selection search_by_error(const std::vector<MeasuredMatrix>& matrices, double max_error);

// Greedy search for the smallest weighted sum of squared errors within `bytes`. All matrices start
// with their smallest candidate; the step with the largest reduction of the sum per added byte is
// taken first; a matrix whose next step does not fit keeps its candidate from then on. More bytes
// never give a larger sum. `bytes` must suffice for the smallest candidates.
Selection search_by_size(const std::vector<MeasuredMatrix>& matrices, uint64_t bytes);

uint64_t least_bytes(const std::vector<MeasuredMatrix>& matrices);

// The root of the weighted mean of squared errors.
double mean_error(const std::vector<MeasuredMatrix>& matrices, const Selection& selection);

}  // namespace flux2::convert
