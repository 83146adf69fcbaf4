#include "low_rank.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "base/random.hpp"

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include <algorithm>
#include <numeric>
#include <vector>

namespace flux2::convert {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;

constexpr uint64_t kSeed = 1;
// Directions beyond the rank, and passes over the matrix and its transpose: with both the error is
// within a few percent of the least possible even when singular values fall slowly.
constexpr Index kMoreDirections = 10;
constexpr int kPasses = 2;
constexpr Index kPiece = 256;  // rows or columns that a thread takes at a time

View as_matrix(const MatrixView& matrix) {
    return {matrix.values.data(), matrix.rows, matrix.columns};
}

// Calls f(first, n) for pieces of 0 .. size, in several threads.
template <typename F>
void for_each_piece(Index size, int n_threads, const F& f) {
    const Index n_pieces = (size + kPiece - 1) / kPiece;
    parallel_for(static_cast<size_t>(n_pieces), n_threads, [&](size_t i, size_t) {
        const Index first = static_cast<Index>(i) * kPiece;
        f(first, std::min(kPiece, size - first));
    });
}

Matrix times(const View& d, const Matrix& x, int n_threads) {
    Matrix result(d.rows(), x.cols());
    for_each_piece(d.rows(), n_threads, [&](Index first, Index n) {
        result.middleRows(first, n).noalias() = d.middleRows(first, n) * x;
    });
    return result;
}

Matrix transpose_times(const View& d, const Matrix& x, int n_threads) {
    Matrix result(d.cols(), x.cols());
    for_each_piece(d.cols(), n_threads, [&](Index first, Index n) {
        result.middleRows(first, n).noalias() = d.middleCols(first, n).transpose() * x;
    });
    return result;
}

struct Qr {
    Matrix q;  // orthonormal columns
    Matrix r;  // square, upper triangle
};

Qr decompose(const Matrix& x) {
    const Eigen::HouseholderQR<Eigen::MatrixXf> qr(x);
    const Index k = x.cols();
    return {qr.householderQ() * Eigen::MatrixXf::Identity(x.rows(), k),
            qr.matrixQR().topRows(k).triangularView<Eigen::Upper>().toDenseMatrix()};
}

struct LargestValues {
    Eigen::ArrayXf values;  // singular values, the largest first
    Matrix u;               // their left vectors
};

// Of a small square matrix m, from the eigenvalues of m m^T. In double their squares lose nothing
// that F32 holds, and a singular value decomposition takes a minute to compile.
LargestValues largest_values(const Matrix& m, Index n) {
    const Eigen::MatrixXd wide = m.cast<double>();
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(wide * wide.transpose());
    return {solver.eigenvalues().reverse().head(n).array().max(0).sqrt().cast<float>(),
            solver.eigenvectors().rowwise().reverse().leftCols(n).cast<float>()};
}

Matrix random_directions(Index rows, Index columns) {
    const auto n = static_cast<size_t>(rows * columns);
    const std::vector<float> values = draw_normal(Generator::cpu_f32, kSeed, (n + 15) / 16 * 16);
    return View(values.data(), rows, columns);
}

std::vector<float> as_vector(const Matrix& matrix) {
    return {matrix.data(), matrix.data() + matrix.size()};
}

}  // namespace

LowRankPair nearest_of_rank(const MatrixView& matrix, int64_t rank, int n_threads) {
    const View d = as_matrix(matrix);
    const Index most = std::min(d.rows(), d.cols());
    check(rank > 0 && most > 0, ErrorKind::internal, "no matrix of rank ", rank);
    rank = std::min<Index>(rank, most);
    const Index n_directions = std::min(rank + kMoreDirections, most);

    // The space of the largest singular vectors, then the matrix within it: d ~ q (r^T v^T).
    Matrix q = decompose(times(d, random_directions(d.cols(), n_directions), n_threads)).q;
    for (int i = 0; i < kPasses; ++i) {
        const Matrix other_side = decompose(transpose_times(d, q, n_threads)).q;
        q = decompose(times(d, other_side, n_threads)).q;
    }
    const Qr within = decompose(transpose_times(d, q, n_threads));
    const LargestValues largest = largest_values(within.r.transpose(), rank);
    const Eigen::ArrayXf roots = largest.values.sqrt();
    Matrix up = q * largest.u;
    Matrix down = largest.u.transpose() * within.r.transpose() * within.q.transpose();
    up.array().rowwise() *= roots.transpose();
    down.array().colwise() *= (roots > 0).select(1 / roots, 0.0f);
    return {rank, as_vector(down), as_vector(up)};
}

double squares_left(const MatrixView& matrix, const LowRankPair& pair, int n_threads) {
    const View d = as_matrix(matrix);
    check(pair.up.size() == static_cast<size_t>(d.rows() * pair.rank) &&
              pair.down.size() == static_cast<size_t>(pair.rank * d.cols()),
          ErrorKind::internal, "a product of other sizes than its matrix");
    const View up(pair.up.data(), d.rows(), pair.rank);
    const View down(pair.down.data(), pair.rank, d.cols());
    // Of each piece, summed in order.
    std::vector<double> squares(static_cast<size_t>((d.rows() + kPiece - 1) / kPiece));
    for_each_piece(d.rows(), n_threads, [&](Index first, Index n) {
        Matrix left = d.middleRows(first, n);
        left.noalias() -= up.middleRows(first, n) * down;
        squares[static_cast<size_t>(first / kPiece)] = static_cast<double>(left.squaredNorm());
    });
    return std::accumulate(squares.begin(), squares.end(), 0.0);
}

}  // namespace flux2::convert
