#include "adapters/formulas.hpp"

#include "base/check.hpp"

#include <Eigen/Core>
#include <Eigen/LU>

#include <algorithm>
#include <cmath>
#include <limits>

namespace flux2 {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Matrix>;  // of the tensor that is changed

// Rows of a change that is made a piece at a time.
constexpr Index kPieceRows = 256;

// Reads a module's tensors. Eigen ends the process when sizes do not agree, so each is checked.
class Reader {
  public:
    Reader(const AdapterModule& module, const std::string& file) : module_(module), file_(file) {}

    const AdapterModule& module() const { return module_; }

    const TensorInfo& info(AdapterRole role) const {
        const TensorInfo* tensor = module_.find(role);
        check(tensor != nullptr, ErrorKind::internal, file_, ": ", module_.stem,
              " was read without one of its tensors");
        return *tensor;
    }

    // The tensor with as many rows as its slowest dimension has.
    Matrix read(AdapterRole role) const {
        const Shape& shape = info(role).shape;
        const int64_t rows =
            shape.n_dims > 2 ? shape.ne[static_cast<size_t>(shape.n_dims) - 1] : shape.ne[1];
        require(rows > 0);
        return read(role, rows, shape.elements() / rows);
    }

    Matrix read(AdapterRole role, Index rows, Index columns) const {
        const TensorInfo& tensor = info(role);
        require(rows > 0 && columns > 0 && tensor.shape.elements() == rows * columns);
        check(converts_to_f32(tensor.type), ErrorKind::unsupported, file_, ": tensor ", tensor.name,
              " is of type ", type_name(tensor.type), ", which holds no weights");
        Matrix matrix(rows, columns);
        const std::span<float> values(matrix.data(), static_cast<size_t>(matrix.size()));
        to_f32(tensor.type, tensor.bytes, values);
        if (const size_t i = find_not_finite(values); i < values.size()) {
            fail(ErrorKind::bad_file, file_, ": tensor ", tensor.name, " holds ", values[i],
                 " as value ", i,
                 ", where a finite number is expected; the file is broken, download it again");
        }
        return matrix;
    }

    // A size that the reader of files has checked already.
    void require(bool fits) const {
        check(fits, ErrorKind::internal, file_, ": the tensors of ", module_.stem,
              " do not fit together");
    }

    [[noreturn]] void refuse(const std::string& problem) const {
        fail(ErrorKind::bad_file, file_, ": ", module_.stem, " ", problem,
             "; the file is broken, download it again");
    }

  private:
    const AdapterModule& module_;
    const std::string& file_;
};

// ---- Kinds that add something ----

void add_lora(const Reader& reader, float factor, Rows& w) {
    const Index rank = reader.module().rank;
    const Matrix down = reader.read(AdapterRole::down, rank, w.cols());
    const Matrix up = factor * reader.read(AdapterRole::up, w.rows(), rank);
    w.noalias() += up * down;
}

void add_loha(const Reader& reader, float factor, Rows& w) {
    const Matrix w1_a = factor * reader.read(AdapterRole::hada_w1_a);
    const Matrix w1_b = reader.read(AdapterRole::hada_w1_b);
    const Matrix w2_a = reader.read(AdapterRole::hada_w2_a);
    const Matrix w2_b = reader.read(AdapterRole::hada_w2_b);
    reader.require(w1_a.rows() == w.rows() && w2_a.rows() == w.rows() && w1_b.cols() == w.cols() &&
                   w2_b.cols() == w.cols() && w1_a.cols() == w1_b.rows() &&
                   w2_a.cols() == w2_b.rows());
    for (Index first = 0; first < w.rows(); first += kPieceRows) {
        const Index n = std::min(kPieceRows, w.rows() - first);
        const Matrix left = w1_a.middleRows(first, n) * w1_b;
        const Matrix right = w2_a.middleRows(first, n) * w2_b;
        w.middleRows(first, n) += left.cwiseProduct(right);
    }
}

// A factor of a Kronecker product, stored whole or as a product of two.
Matrix read_lokr_factor(const Reader& reader, AdapterRole whole, AdapterRole a, AdapterRole b) {
    if (reader.module().has(whole)) {
        return reader.read(whole);
    }
    const Matrix left = reader.read(a);
    const Matrix right = reader.read(b);
    reader.require(left.cols() == right.rows());
    return left * right;
}

void add_lokr(const Reader& reader, float factor, Rows& w) {
    using enum AdapterRole;
    const Matrix w1 = factor * read_lokr_factor(reader, lokr_w1, lokr_w1_a, lokr_w1_b);
    const Matrix w2 = read_lokr_factor(reader, lokr_w2, lokr_w2_a, lokr_w2_b);
    reader.require(w1.rows() * w2.rows() == w.rows() && w1.cols() * w2.cols() == w.cols());
    for (Index p = 0; p < w1.rows(); ++p) {
        for (Index q = 0; q < w1.cols(); ++q) {
            w.block(p * w2.rows(), q * w2.cols(), w2.rows(), w2.cols()) += w1(p, q) * w2;
        }
    }
}

// b1 b2 + W a1 a2; files of the first versions of LyCORIS have each pair the other way round.
void add_glora(const Reader& reader, float factor, Rows& w) {
    Matrix a1 = reader.read(AdapterRole::glora_a1), a2 = reader.read(AdapterRole::glora_a2);
    Matrix b1 = reader.read(AdapterRole::glora_b1), b2 = reader.read(AdapterRole::glora_b2);
    const auto fits = [&] {
        return a1.rows() == w.cols() && a2.cols() == w.cols() && a1.cols() == a2.rows() &&
               b1.rows() == w.rows() && b2.cols() == w.cols() && b1.cols() == b2.rows();
    };
    if (!fits()) {
        a1.swap(a2);
        b1.swap(b2);
    }
    reader.require(fits());
    const Matrix projected = factor * (w * a1);
    b1 *= factor;
    w.noalias() += b1 * b2;
    w.noalias() += projected * a2;
}

void add_change(const Reader& reader, float strength, Rows& w) {
    const auto factor = static_cast<float>(reader.module().factor * static_cast<double>(strength));
    switch (reader.module().kind) {
        case AdapterKind::lora:
            return add_lora(reader, factor, w);
        case AdapterKind::loha:
            return add_loha(reader, factor, w);
        case AdapterKind::lokr:
            return add_lokr(reader, factor, w);
        case AdapterKind::glora:
            return add_glora(reader, factor, w);
        case AdapterKind::diff:
            w += factor * reader.read(AdapterRole::diff, w.rows(), w.cols());
            return;
        default:
            fail(ErrorKind::internal, "this kind of adapter adds nothing");
    }
}

// ---- DoRA ----

// Whether the magnitude is one value per row; [1, in] is one per column, a vector one per row.
bool is_per_row(const TensorInfo& magnitude, Index n_rows) {
    const bool row_vector = magnitude.shape.n_dims > 1 && magnitude.shape.ne[0] > 1;
    return magnitude.shape.elements() == n_rows && !row_vector;
}

Eigen::RowVectorXf column_norms(const Matrix& v) {
    Eigen::RowVectorXf squares = Eigen::RowVectorXf::Zero(v.cols());
    for (Index i = 0; i < v.rows(); ++i) {
        squares += v.row(i).cwiseAbs2();
    }
    return squares.cwiseSqrt();
}

// W + strength (W' - W), where W' has the directions of V = W + change and the file's magnitudes.
void decompose(const Reader& reader, float strength, Rows& w) {
    // What LyCORIS adds to the norm.
    constexpr float kEps = std::numeric_limits<float>::epsilon();
    const bool per_row = is_per_row(reader.info(AdapterRole::magnitude), w.rows());
    const Eigen::ArrayXf magnitude =
        reader.read(AdapterRole::magnitude, per_row ? w.rows() : w.cols(), 1).array();
    Matrix v = w;
    Rows changed(v.data(), v.rows(), v.cols());
    add_change(reader, 1, changed);
    if (per_row) {
        const Eigen::ArrayXf scale = magnitude / (v.rowwise().norm().array() + kEps);
        v.array().colwise() *= scale;
    } else {
        const Eigen::ArrayXf scale = magnitude / (column_norms(v).transpose().array() + kEps);
        v.array().rowwise() *= scale.transpose();
    }
    w += strength * (v - w);
}

// ---- Rotations ----

// Strength between no rotation and the whole one, as LyCORIS has it.
Matrix weakened(const Matrix& rotation, float strength) {
    const Index n = rotation.rows();
    return strength * rotation + (1 - strength) * Matrix::Identity(n, n);
}

// The blocks of Diag-OFT and BOFT: [..., b, b] square matrices O, of which each gives the rotation
// (I + Q) / (I - Q) with Q = O - O^T.
class CayleyBlocks {
  public:
    explicit CayleyBlocks(const Reader& reader)
        : size_(reader.info(AdapterRole::oft_blocks).shape.ne[0]) {
        const Index n = reader.info(AdapterRole::oft_blocks).shape.elements();
        reader.require(size_ > 0 && n % (size_ * size_) == 0);
        blocks_ = reader.read(AdapterRole::oft_blocks, n / size_, size_);
        limit(reader.module());
    }

    Index size() const { return size_; }
    Index n_blocks() const { return blocks_.rows() / size_; }
    Matrix rotation(Index block, float strength) const {
        const Matrix q = factor_ * skew(block);
        const Matrix identity = Matrix::Identity(size_, size_);
        return weakened((identity - q).partialPivLu().solve(identity + q), strength);
    }

  private:
    Matrix skew(Index block) const {
        const auto o = blocks_.middleRows(block * size_, size_);
        return o - o.transpose();
    }
    // Keeps the norm of all blocks together below the constraint, which counts per output.
    void limit(const AdapterModule& module) {
        if (module.constraint <= 0) {
            return;
        }
        double squares = 0;
        for (Index i = 0; i < n_blocks(); ++i) {
            squares += static_cast<double>(skew(i).squaredNorm());
        }
        const double most = module.constraint * static_cast<double>(module.n_out);
        const double norm = std::sqrt(squares) + 1e-8;
        factor_ = norm > most ? static_cast<float>(most / norm) : 1.0f;
    }

    Index size_;
    Matrix blocks_;
    float factor_ = 1;
};

void rescale_rows(const Reader& reader, Rows& w) {
    if (reader.module().has(AdapterRole::rescale)) {
        const Eigen::ArrayXf scale = reader.read(AdapterRole::rescale, w.rows(), 1).array();
        w.array().colwise() *= scale;
    }
}

void apply_oft(const Reader& reader, float strength, Rows& w) {
    const CayleyBlocks blocks(reader);
    reader.require(blocks.n_blocks() * blocks.size() == w.rows());
    for (Index i = 0; i < blocks.n_blocks(); ++i) {
        auto rows = w.middleRows(i * blocks.size(), blocks.size());
        rows = (blocks.rotation(i, strength).transpose() * rows).eval();
    }
    rescale_rows(reader, w);
}

// Where the row at this position of a butterfly stage is: in each group of 2 * half rows the stage
// alternates between the first and the second half.
Index butterfly_row(Index position, Index half) {
    const Index in_group = position % (2 * half);
    return position - in_group + in_group % 2 * half + in_group / 2;
}

void apply_boft(const Reader& reader, float strength, Rows& w) {
    const CayleyBlocks blocks(reader);
    const Index size = blocks.size();
    const Index per_stage = w.rows() / size;
    reader.require(per_stage > 0 && per_stage * size == w.rows() &&
                   blocks.n_blocks() % per_stage == 0);
    Matrix gathered(size, w.cols());
    Index half = size / 2;
    for (Index first = 0; first < blocks.n_blocks(); first += per_stage, half *= 2) {
        if (size % 2 != 0 || w.rows() % (2 * half) != 0) {
            reader.refuse(concat("has BOFT blocks of ", size, " in ", blocks.n_blocks() / per_stage,
                                 " stages, which do not divide its ", w.rows(), " rows"));
        }
        for (Index block = 0; block < per_stage; ++block) {
            for (Index i = 0; i < size; ++i) {
                gathered.row(i) = w.row(butterfly_row(block * size + i, half));
            }
            gathered = (blocks.rotation(first + block, strength) * gathered).eval();
            for (Index i = 0; i < size; ++i) {
                w.row(butterfly_row(block * size + i, half)) = gathered.row(i);
            }
        }
    }
    rescale_rows(reader, w);
}

// The skew-symmetric matrix with these values above its diagonal, row after row.
Matrix skew_from_triangle(const Eigen::Ref<const Eigen::RowVectorXf>& values, Index size) {
    Matrix q = Matrix::Zero(size, size);
    Index next = 0;
    for (Index i = 0; i < size; ++i) {
        for (Index j = i + 1; j < size; ++j, ++next) {
            q(i, j) = values(next);
            q(j, i) = -values(next);
        }
    }
    return q;
}

// The first five terms of (I + Q) / (I - Q) as peft sums them.
Matrix cayley_neumann(const Matrix& q) {
    const Matrix squared = q * q;
    return Matrix::Identity(q.rows(), q.cols()) + 2 * (q + squared + squared * q) +
           squared * squared;
}

// Rotates inputs: peft multiplies each block of x, as a row, by R, so that W becomes W R^T. A
// single block stands for all.
void apply_oft_v2(const Reader& reader, float strength, Rows& w) {
    const Matrix triangles = reader.read(AdapterRole::oft_r);
    const auto size = static_cast<Index>(
        std::lround((1 + std::sqrt(1 + 8 * static_cast<double>(triangles.cols()))) / 2));
    reader.require(size >= 2 && size * (size - 1) / 2 == triangles.cols() && w.cols() % size == 0);
    const Index n_blocks = w.cols() / size;
    reader.require(triangles.rows() == n_blocks || triangles.rows() == 1);
    const float factor = reader.module().has(AdapterRole::scaled_oft)
                             ? 0.5f / std::sqrt(static_cast<float>(size - 1))
                             : 1.0f;
    for (Index i = 0; i < n_blocks; ++i) {
        const auto triangle = triangles.row(triangles.rows() == 1 ? 0 : i);
        const Matrix rotation = cayley_neumann(factor * skew_from_triangle(triangle, size));
        auto columns = w.middleCols(i * size, size);
        columns = (columns * weakened(rotation, strength).transpose()).eval();
    }
}

// ---- All kinds ----

void apply_in_file_order(const Reader& reader, float strength, Rows& w) {
    const AdapterModule& module = reader.module();
    const bool adds = module.kind != AdapterKind::set_weight && module.kind != AdapterKind::oft &&
                      module.kind != AdapterKind::boft && module.kind != AdapterKind::oft_v2;
    if (module.has(AdapterRole::magnitude)) {
        if (!adds) {
            reader.refuse("has a DoRA magnitude, which its kind cannot have");
        }
        return decompose(reader, strength, w);
    }
    switch (module.kind) {
        case AdapterKind::set_weight:
            w = reader.read(AdapterRole::set_weight, w.rows(), w.cols());
            return;
        case AdapterKind::oft:
            return apply_oft(reader, strength, w);
        case AdapterKind::boft:
            return apply_boft(reader, strength, w);
        case AdapterKind::oft_v2:
            return apply_oft_v2(reader, strength, w);
        default:
            return add_change(reader, strength, w);
    }
}

void swap_halves(std::span<float> rows) {
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
    std::swap_ranges(rows.begin(), middle, middle);
}

// Files of some kinds do not tell one of the two sizes; the tensor does.
Rows rows_of(const Reader& reader, std::span<float> w) {
    const AdapterModule& module = reader.module();
    const auto n = static_cast<int64_t>(w.size());
    reader.require(module.n_out > 0 || module.n_in > 0);
    const int64_t n_out = module.n_out > 0 ? module.n_out : n / module.n_in;
    const int64_t n_in = module.n_in > 0 ? module.n_in : n / module.n_out;
    reader.require(n > 0 && n_out * n_in == n && (!module.swap_halves || n_out % 2 == 0));
    return {w.data(), n_out, n_in};
}

}  // namespace

bool is_low_rank(const AdapterModule& module) {
    return module.kind == AdapterKind::lora && !module.has(AdapterRole::magnitude);
}

LowRankPair low_rank_pair(const AdapterModule& module, const std::string& file) {
    const Reader reader(module, file);
    reader.require(is_low_rank(module) && (!module.swap_halves || module.n_out % 2 == 0));
    const Matrix down = reader.read(AdapterRole::down, module.rank, module.n_in);
    const Matrix up =
        static_cast<float>(module.factor) * reader.read(AdapterRole::up, module.n_out, module.rank);
    LowRankPair pair{
        module.rank, {down.data(), down.data() + down.size()}, {up.data(), up.data() + up.size()}};
    if (module.swap_halves) {
        swap_halves(pair.up);
    }
    return pair;
}

void apply_module(const AdapterModule& module, const std::string& file, float strength,
                  std::span<float> w) {
    if (strength == 0) {
        return;
    }
    const Reader reader(module, file);
    Rows rows = rows_of(reader, w);
    // The formulas see the rows in the file's order, then none of its tensors needs reordering.
    if (module.swap_halves) {
        swap_halves(w);
    }
    apply_in_file_order(reader, strength, rows);
    if (module.swap_halves) {
        swap_halves(w);
    }
}

}  // namespace flux2
