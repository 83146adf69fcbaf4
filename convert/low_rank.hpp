// The product of two thin matrices that is nearest to a matrix: a truncated singular value
// decomposition, found by random projection (Halko, Martinsson, Tropp 2011).
#pragma once

#include "adapters/formulas.hpp"

#include <cstdint>
#include <span>

namespace flux2::convert {

// A matrix of finite values [rows, columns], row after row.
struct MatrixView {
    std::span<const float> values;
    int64_t rows, columns;
};

// Of this rank, or of the smaller side of the matrix if that is less; each factor has the square
// roots of the singular values. Depends on the matrix alone, not on the number of threads. Needs
// memory for a few times rank * (rows + columns).
LowRankPair nearest_of_rank(const MatrixView& matrix, int64_t rank, int n_threads);

// The sum of squares of matrix - up * down.
double squares_left(const MatrixView& matrix, const LowRankPair& pair, int n_threads);

}  // namespace flux2::convert
