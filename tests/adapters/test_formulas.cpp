// Every kind of adapter against plain loops in double precision, written from LyCORIS's and peft's
// formulas.
#include "adapters/formulas.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace flux2 {
namespace {

using enum AdapterRole;
using test::error_of;

constexpr const char* kFile = "x.safetensors";

// A matrix in double precision.
struct Plain {
    size_t rows = 0, columns = 0;
    std::vector<double> values;

    Plain(size_t n_rows, size_t n_columns)
        : rows(n_rows), columns(n_columns), values(n_rows * n_columns) {}
    double& at(size_t r, size_t c) { return values[r * columns + c]; }
    double at(size_t r, size_t c) const { return values[r * columns + c]; }
};

// Values in -1..1 that F32 holds exactly.
Plain random_matrix(size_t rows, size_t columns, unsigned seed) {
    std::mt19937 generator(seed);
    Plain matrix(rows, columns);
    for (double& value : matrix.values) {
        value = static_cast<double>(generator() % 2001) / 1024 - 1000.0 / 1024;
    }
    return matrix;
}

Plain identity(size_t n) {
    Plain matrix(n, n);
    for (size_t i = 0; i < n; ++i) {
        matrix.at(i, i) = 1;
    }
    return matrix;
}

Plain product(const Plain& a, const Plain& b) {
    REQUIRE(a.columns == b.rows);
    Plain result(a.rows, b.columns);
    for (size_t i = 0; i < a.rows; ++i) {
        for (size_t j = 0; j < b.columns; ++j) {
            for (size_t k = 0; k < a.columns; ++k) {
                result.at(i, j) += a.at(i, k) * b.at(k, j);
            }
        }
    }
    return result;
}

// a + factor * b
Plain sum(const Plain& a, double factor, const Plain& b) {
    Plain result = a;
    for (size_t i = 0; i < a.values.size(); ++i) {
        result.values[i] += factor * b.values[i];
    }
    return result;
}

// By Gauss and Jordan with pivots.
Plain inverse(Plain a) {
    Plain result = identity(a.rows);
    for (size_t k = 0; k < a.rows; ++k) {
        size_t pivot = k;
        for (size_t i = k; i < a.rows; ++i) {
            pivot = std::abs(a.at(i, k)) > std::abs(a.at(pivot, k)) ? i : pivot;
        }
        for (size_t j = 0; j < a.rows; ++j) {
            std::swap(a.at(k, j), a.at(pivot, j));
            std::swap(result.at(k, j), result.at(pivot, j));
        }
        const double scale = 1 / a.at(k, k);
        for (size_t j = 0; j < a.rows; ++j) {
            a.at(k, j) *= scale;
            result.at(k, j) *= scale;
        }
        for (size_t i = 0; i < a.rows; ++i) {
            const double factor = i == k ? 0 : a.at(i, k);
            for (size_t j = 0; j < a.rows; ++j) {
                a.at(i, j) -= factor * a.at(k, j);
                result.at(i, j) -= factor * result.at(k, j);
            }
        }
    }
    return result;
}

Plain swapped_halves(const Plain& a) {
    Plain result = a;
    for (size_t i = 0; i < a.rows; ++i) {
        for (size_t j = 0; j < a.columns; ++j) {
            result.at(i, j) = a.at((i + a.rows / 2) % a.rows, j);
        }
    }
    return result;
}

std::vector<float> as_floats(const Plain& matrix) {
    return {matrix.values.begin(), matrix.values.end()};
}

// A module whose tensors lie in memory.
class TestModule {
  public:
    TestModule(AdapterKind kind, size_t n_out, size_t n_in) {
        module.kind = kind;
        module.tensor = "double_blocks.0.img_attn.proj.weight";
        module.stem = "diffusion_model.double_blocks.0.img_attn.proj";
        module.n_out = static_cast<int64_t>(n_out);
        module.n_in = static_cast<int64_t>(n_in);
    }

    TestModule& add(AdapterRole role, const Plain& matrix) {
        return add(role, {static_cast<int64_t>(matrix.columns), static_cast<int64_t>(matrix.rows)},
                   as_floats(matrix));
    }
    TestModule& add(AdapterRole role, const Shape& shape, const std::vector<float>& values) {
        data_.push_back(test::bytes_of(values));
        infos_.push_back(
            {"tensor" + std::to_string(infos_.size()), TensorType::f32, shape, data_.back()});
        module.tensors[role] = &infos_.back();
        return *this;
    }

    AdapterModule module;

  private:
    std::deque<test::Bytes> data_;
    std::deque<TensorInfo> infos_;
};

TestModule lora(const Plain& up, const Plain& down, double factor) {
    TestModule result(AdapterKind::lora, up.rows, down.columns);
    result.add(AdapterRole::up, up).add(AdapterRole::down, down);
    result.module.rank = static_cast<int64_t>(down.rows);
    result.module.factor = factor;
    return result;
}

std::vector<float> applied(const AdapterModule& module, float strength, const Plain& w) {
    std::vector<float> values = as_floats(w);
    apply_module(module, kFile, strength, values);
    return values;
}

// F32 sums of up to 100 products of values up to some tens: relative to the largest value.
constexpr double kTolerance = 3e-6;

void check_close(const std::vector<float>& found, const Plain& expected) {
    REQUIRE(found.size() == expected.values.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < found.size(); ++i) {
        largest = std::max(largest, std::abs(expected.values[i]));
        difference =
            std::max(difference, std::abs(expected.values[i] - static_cast<double>(found[i])));
    }
    CHECK(difference <= kTolerance * largest);
}

// Applies the module with two strengths.
template <typename Expected>
void check_strengths(const TestModule& module, const Plain& w, const Expected& expected) {
    for (const float strength : {1.0f, -0.375f}) {
        check_close(applied(module.module, strength, w), expected(static_cast<double>(strength)));
    }
}

const Plain kW = random_matrix(24, 16, 1);

}  // namespace

TEST_CASE("a LoRA adds factor times up times down") {
    const Plain up = random_matrix(24, 4, 2), down = random_matrix(4, 16, 3);
    // alpha 2 of rank 4 by the usual rule and by rsLoRA's.
    for (const double factor : {2.0 / 4, 2 / std::sqrt(4.0)}) {
        const TestModule module = lora(up, down, factor);
        check_strengths(module, kW,
                        [&](double s) { return sum(kW, s * factor, product(up, down)); });
    }
}

TEST_CASE("a LoRA's pair is its product with the factor in up") {
    const Plain up = random_matrix(24, 4, 2), down = random_matrix(4, 16, 3);
    TestModule module = lora(up, down, 0.5);
    CHECK(is_low_rank(module.module));
    LowRankPair pair = low_rank_pair(module.module, kFile);
    CHECK(pair.rank == 4);
    CHECK(pair.down == as_floats(down));
    CHECK(pair.up == as_floats(sum(Plain(24, 4), 0.5, up)));
    module.module.swap_halves = true;
    CHECK(low_rank_pair(module.module, kFile).up ==
          as_floats(swapped_halves(sum(Plain(24, 4), 0.5, up))));
    module.add(magnitude, random_matrix(24, 1, 4));
    CHECK_FALSE(is_low_rank(module.module));
}

TEST_CASE("a LoHa adds the product of two products, element by element") {
    // Two ranks; the first is LyCORIS's.
    const Plain w1_a = random_matrix(24, 3, 2), w1_b = random_matrix(3, 16, 3);
    const Plain w2_a = random_matrix(24, 5, 4), w2_b = random_matrix(5, 16, 5);
    TestModule module(AdapterKind::loha, 24, 16);
    module.add(hada_w1_a, w1_a).add(hada_w1_b, w1_b).add(hada_w2_a, w2_a).add(hada_w2_b, w2_b);
    module.module.rank = 3;
    module.module.factor = 1.0 / 3;
    const Plain left = product(w1_a, w1_b), right = product(w2_a, w2_b);
    Plain change(24, 16);
    for (size_t i = 0; i < change.values.size(); ++i) {
        change.values[i] = left.values[i] * right.values[i];
    }
    check_strengths(module, kW, [&](double s) { return sum(kW, s / 3, change); });
}

TEST_CASE("a LoHa of more rows than one piece is complete") {
    const Plain w = random_matrix(600, 2, 1);
    const Plain a = random_matrix(600, 1, 2), b = random_matrix(1, 2, 3);
    TestModule module(AdapterKind::loha, 600, 2);
    module.add(hada_w1_a, a).add(hada_w1_b, b).add(hada_w2_a, a).add(hada_w2_b, b);
    Plain change = product(a, b);
    for (double& value : change.values) {
        value *= value;
    }
    check_close(applied(module.module, 1, w), sum(w, 1, change));
}

TEST_CASE("a LoKr adds a Kronecker product of whole or split factors") {
    const Plain w1_a = random_matrix(4, 2, 2), w1_b = random_matrix(2, 8, 3);
    const Plain w2_a = random_matrix(6, 1, 4), w2_b = random_matrix(1, 2, 5);
    const Plain w1 = product(w1_a, w1_b), w2 = product(w2_a, w2_b);
    Plain change(24, 16);
    for (size_t p = 0; p < 4; ++p) {
        for (size_t q = 0; q < 8; ++q) {
            for (size_t o = 0; o < 6; ++o) {
                for (size_t i = 0; i < 2; ++i) {
                    change.at(p * 6 + o, q * 2 + i) = w1.at(p, q) * w2.at(o, i);
                }
            }
        }
    }
    for (const bool split1 : {false, true}) {
        for (const bool split2 : {false, true}) {
            TestModule module(AdapterKind::lokr, 24, 16);
            split1 ? module.add(lokr_w1_a, w1_a).add(lokr_w1_b, w1_b) : module.add(lokr_w1, w1);
            split2 ? module.add(lokr_w2_a, w2_a).add(lokr_w2_b, w2_b) : module.add(lokr_w2, w2);
            module.module.factor = 0.75;
            check_strengths(module, kW, [&](double s) { return sum(kW, s * 0.75, change); });
        }
    }
}

TEST_CASE("a GLoRA adds b1 b2 + W a1 a2, in old files b2 b1 + W a2 a1") {
    const Plain a1 = random_matrix(16, 3, 2), a2 = random_matrix(3, 16, 3);
    const Plain b1 = random_matrix(24, 3, 4), b2 = random_matrix(3, 16, 5);
    const Plain change = sum(product(b1, b2), 1, product(kW, product(a1, a2)));
    TestModule current(AdapterKind::glora, 24, 16), old(AdapterKind::glora, 24, 16);
    current.add(glora_a1, a1).add(glora_a2, a2).add(glora_b1, b1).add(glora_b2, b2);
    old.add(glora_a1, a2).add(glora_a2, a1).add(glora_b1, b2).add(glora_b2, b1);
    for (TestModule* module : {&current, &old}) {
        module->module.factor = 0.5;
        check_strengths(*module, kW, [&](double s) { return sum(kW, s * 0.5, change); });
    }
}

namespace {

// W' of DoRA: V with the magnitudes instead of its norms, per row or per column.
Plain with_magnitudes(Plain v, const std::vector<double>& magnitudes, bool per_row) {
    std::vector<double> squares(magnitudes.size());
    for (size_t i = 0; i < v.rows; ++i) {
        for (size_t j = 0; j < v.columns; ++j) {
            squares[per_row ? i : j] += v.at(i, j) * v.at(i, j);
        }
    }
    for (size_t i = 0; i < v.rows; ++i) {
        for (size_t j = 0; j < v.columns; ++j) {
            const size_t k = per_row ? i : j;
            v.at(i, j) *= magnitudes[k] / std::sqrt(squares[k]);
        }
    }
    return v;
}

}  // namespace

TEST_CASE("DoRA gives V its magnitudes per row or per column, linearly in the strength") {
    for (const size_t n_out : {24u, 16u}) {  // a square matrix too, where only the shape tells
        const Plain w = random_matrix(n_out, 16, 1);
        const Plain up = random_matrix(n_out, 4, 2), down = random_matrix(4, 16, 3);
        const Plain v = sum(w, 0.5, product(up, down));
        const auto check_magnitude = [&](const Shape& shape, bool per_row) {
            const Plain values = random_matrix(per_row ? n_out : 16, 1, 4);
            TestModule module = lora(up, down, 0.5);
            module.add(magnitude, shape, as_floats(values));
            const Plain full = with_magnitudes(v, values.values, per_row);
            check_strengths(module, w, [&](double s) { return sum(w, s, sum(full, -1, w)); });
        };
        const auto n = static_cast<int64_t>(n_out);
        check_magnitude({1, n}, true);    // [out, 1]
        check_magnitude({n}, true);       // peft's [out]
        check_magnitude({16, 1}, false);  // [1, in]
    }
}

TEST_CASE("DoRA works over LoHa and LoKr too") {
    const Plain a = random_matrix(24, 2, 2), b = random_matrix(2, 16, 3);
    const Plain magnitudes = random_matrix(24, 1, 4);
    TestModule loha(AdapterKind::loha, 24, 16);
    loha.add(hada_w1_a, a).add(hada_w1_b, b).add(hada_w2_a, a).add(hada_w2_b, b);
    Plain change = product(a, b);
    for (double& value : change.values) {
        value *= value;
    }
    loha.add(magnitude, magnitudes);
    check_close(applied(loha.module, 1, kW),
                with_magnitudes(sum(kW, 1, change), magnitudes.values, true));

    TestModule lokr(AdapterKind::lokr, 24, 16);
    const Plain whole = random_matrix(24, 16, 5);
    lokr.add(lokr_w1, identity(1)).add(lokr_w2, whole).add(magnitude, magnitudes);
    check_close(applied(lokr.module, 1, kW),
                with_magnitudes(sum(kW, 1, whole), magnitudes.values, true));
}

TEST_CASE("a row of zeros survives DoRA") {
    const Plain zeros(2, 2);
    TestModule module = lora(Plain(2, 1), Plain(1, 2), 1);
    module.add(magnitude, random_matrix(2, 1, 1));
    CHECK(applied(module.module, 1, zeros) == as_floats(zeros));
}

TEST_CASE("a difference is added, a set weight replaces, for norms as for matrices") {
    for (const size_t n_in : {16u, 1u}) {
        const Plain w = random_matrix(24, n_in, 1), other = random_matrix(24, n_in, 2);
        TestModule added(AdapterKind::diff, 24, n_in), set(AdapterKind::set_weight, 24, n_in);
        added.add(AdapterRole::diff, other);
        set.add(AdapterRole::set_weight, other);
        check_strengths(added, w, [&](double s) { return sum(w, s, other); });
        check_strengths(set, w, [&](double) { return other; });
    }
    // Norms are vectors in files.
    const Plain w = random_matrix(24, 1, 1), other = random_matrix(24, 1, 2);
    TestModule norm(AdapterKind::diff, 24, 1);
    norm.add(AdapterRole::diff, Shape{24}, as_floats(other));
    check_close(applied(norm.module, 0.5f, w), sum(w, 0.5, other));
}

namespace {

constexpr size_t kBlock = 4;  // rows of a block of OFT below

// Block i of O - O^T, times the factor that a constraint leaves.
Plain skew_block(const Plain& blocks, size_t block, double factor) {
    Plain q(kBlock, kBlock);
    for (size_t i = 0; i < kBlock; ++i) {
        for (size_t j = 0; j < kBlock; ++j) {
            q.at(i, j) =
                factor * (blocks.at(block * kBlock + i, j) - blocks.at(block * kBlock + j, i));
        }
    }
    return q;
}

// (I + Q)(I - Q)^-1, between it and I by the strength.
Plain rotation(const Plain& q, double strength) {
    const Plain full = product(sum(identity(kBlock), 1, q), inverse(sum(identity(kBlock), -1, q)));
    return sum(sum(Plain(kBlock, kBlock), strength, full), 1 - strength, identity(kBlock));
}

double norm_of_skew(const Plain& blocks) {
    double squares = 0;
    for (size_t block = 0; block < blocks.rows / kBlock; ++block) {
        for (const double value : skew_block(blocks, block, 1).values) {
            squares += value * value;
        }
    }
    return std::sqrt(squares);
}

// W'[k, m] = sum over n of R[k, n, m] W[k, n]
Plain oft(const Plain& w, const Plain& blocks, double factor, double strength) {
    Plain result(w.rows, w.columns);
    for (size_t k = 0; k < w.rows / kBlock; ++k) {
        const Plain r = rotation(skew_block(blocks, k, factor), strength);
        for (size_t m = 0; m < kBlock; ++m) {
            for (size_t n = 0; n < kBlock; ++n) {
                for (size_t j = 0; j < w.columns; ++j) {
                    result.at(k * kBlock + m, j) += r.at(n, m) * w.at(k * kBlock + n, j);
                }
            }
        }
    }
    return result;
}

Plain scaled_rows(Plain w, const Plain& scales) {
    for (size_t i = 0; i < w.rows; ++i) {
        for (size_t j = 0; j < w.columns; ++j) {
            w.at(i, j) *= scales.at(i, 0);
        }
    }
    return w;
}

}  // namespace

TEST_CASE("OFT rotates blocks of rows within its constraint, then rescales") {
    const Plain blocks = random_matrix(24, kBlock, 2), scales = random_matrix(24, 1, 3);
    const double norm = norm_of_skew(blocks);
    // None, one that is not reached, and one that halves the rotation. It counts per output.
    for (const double limit : {0.0, 2 * norm, norm / 2}) {
        for (const bool rescaled : {false, true}) {
            TestModule module(AdapterKind::oft, 24, 16);
            module.add(oft_blocks, Shape{4, 4, 6}, as_floats(blocks));
            module.module.constraint = limit / 24;
            if (rescaled) {
                module.add(rescale, scales);
            }
            const double factor = limit == norm / 2 ? 0.5 : 1;
            check_strengths(module, kW, [&](double s) {
                const Plain rotated = oft(kW, blocks, factor, s);
                return rescaled ? scaled_rows(rotated, scales) : rotated;
            });
        }
    }
}

TEST_CASE("BOFT rotates rows in butterfly stages") {
    const size_t n = 16;  // 4 blocks in 3 stages
    const Plain w = random_matrix(n, 8, 1), scales = random_matrix(n, 1, 3);
    const Plain blocks = random_matrix(3 * n, kBlock, 2);
    TestModule module(AdapterKind::boft, n, 8);
    module.add(oft_blocks, Shape{4, 4, 4, 3}, as_floats(blocks)).add(rescale, scales);
    module.module.constraint = norm_of_skew(blocks) / 2 / 16;
    check_strengths(module, w, [&](double s) {
        Plain x = w;
        for (size_t stage = 0; stage < 3; ++stage) {
            // Rows (c, g, k) -> (c, k, g) with g below 2 and k below 2^stage b / 2.
            const size_t n_k = (size_t{1} << stage) * kBlock / 2;
            std::vector<size_t> from;
            for (size_t c = 0; c < n / (2 * n_k); ++c) {
                for (size_t k = 0; k < n_k; ++k) {
                    for (size_t g = 0; g < 2; ++g) {
                        from.push_back((c * 2 + g) * n_k + k);
                    }
                }
            }
            Plain next(n, 8);
            for (size_t block = 0; block < n / kBlock; ++block) {
                const Plain r = rotation(skew_block(blocks, stage * n / kBlock + block, 0.5), s);
                for (size_t i = 0; i < kBlock; ++i) {
                    for (size_t j = 0; j < kBlock; ++j) {
                        for (size_t column = 0; column < 8; ++column) {
                            next.at(from[block * kBlock + i], column) +=
                                r.at(i, j) * x.at(from[block * kBlock + j], column);
                        }
                    }
                }
            }
            x = next;
        }
        return scaled_rows(x, scales);
    });
}

TEST_CASE("BOFT with more stages than its rows allow is refused") {
    TestModule module(AdapterKind::boft, 24, 8);
    module.add(oft_blocks, Shape{4, 4, 6, 3}, as_floats(random_matrix(72, 4, 2)));
    const auto error = error_of([&] { applied(module.module, 1, random_matrix(24, 8, 1)); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("x.safetensors: diffusion_model.double_blocks.0.img_attn.proj"));
}

namespace {

// W' for y = W x' where x' = x R, block by block, for rows x (peft's einsum "...rk,rkc->...rc").
Plain oft_v2(const Plain& w, const Plain& triangles, double factor, double strength) {
    Plain result(w.rows, w.columns);
    for (size_t block = 0; block < w.columns / kBlock; ++block) {
        Plain q(kBlock, kBlock);
        size_t next = 0;
        for (size_t i = 0; i < kBlock; ++i) {
            for (size_t j = i + 1; j < kBlock; ++j, ++next) {
                q.at(i, j) = factor * triangles.at(block % triangles.rows, next);
                q.at(j, i) = -q.at(i, j);
            }
        }
        const Plain q2 = product(q, q), q3 = product(q2, q), q4 = product(q3, q);
        const Plain change = sum(sum(sum(sum(Plain(kBlock, kBlock), 2, q), 2, q2), 2, q3), 1, q4);
        const Plain r = sum(identity(kBlock), strength, change);
        for (size_t o = 0; o < w.rows; ++o) {
            for (size_t k = 0; k < kBlock; ++k) {
                for (size_t c = 0; c < kBlock; ++c) {
                    result.at(o, block * kBlock + k) += w.at(o, block * kBlock + c) * r.at(k, c);
                }
            }
        }
    }
    return result;
}

}  // namespace

TEST_CASE("OFTv2 rotates the inputs, plain or scaled, by a block each or one for all") {
    for (const size_t n_blocks : {4u, 1u}) {
        const Plain triangles = random_matrix(n_blocks, 6, 2);
        TestModule plain(AdapterKind::oft_v2, 24, 16);
        plain.add(oft_r, triangles);
        check_strengths(plain, kW, [&](double s) { return oft_v2(kW, triangles, 1, s); });
        TestModule scaled(AdapterKind::oft_v2, 24, 16);
        scaled.add(oft_r, triangles).add(scaled_oft, Shape{}, {1.0f});
        check_strengths(scaled, kW, [&](double s) {
            return oft_v2(kW, triangles, 1 / (2 * std::sqrt(3.0)), s);
        });
    }
}

TEST_CASE("a size that a file of rotations does not tell follows from the tensor") {
    const Plain blocks = random_matrix(24, kBlock, 2), triangles = random_matrix(4, 6, 3);
    TestModule rows(AdapterKind::oft, 24, 0), columns(AdapterKind::oft_v2, 0, 16);
    rows.add(oft_blocks, Shape{4, 4, 6}, as_floats(blocks));
    check_close(applied(rows.module, 1, kW), oft(kW, blocks, 1, 1));
    columns.add(oft_r, triangles);
    check_close(applied(columns.module, 1, kW), oft_v2(kW, triangles, 1, 1));
}

TEST_CASE("a module whose file has the second half of rows first changes the right rows") {
    const Plain up = random_matrix(24, 4, 2), down = random_matrix(4, 16, 3);
    const Plain magnitudes = random_matrix(24, 1, 4);
    const Plain in_file = swapped_halves(kW);
    const auto check_swapped = [&](TestModule& module, const Plain& expected_in_file) {
        module.module.swap_halves = true;
        check_close(applied(module.module, 1, kW), swapped_halves(expected_in_file));
    };
    TestModule pair = lora(up, down, 1);
    check_swapped(pair, sum(in_file, 1, product(up, down)));
    pair.add(magnitude, magnitudes);
    check_swapped(pair,
                  with_magnitudes(sum(in_file, 1, product(up, down)), magnitudes.values, true));
    const Plain other = random_matrix(24, 16, 5);
    TestModule added(AdapterKind::diff, 24, 16), set(AdapterKind::set_weight, 24, 16);
    added.add(AdapterRole::diff, other);
    check_swapped(added, sum(in_file, 1, other));
    set.add(AdapterRole::set_weight, other);
    check_swapped(set, other);
    const Plain blocks = random_matrix(24, kBlock, 2);
    TestModule rotated(AdapterKind::oft, 24, 16);
    rotated.add(oft_blocks, Shape{4, 4, 6}, as_floats(blocks));
    check_swapped(rotated, oft(in_file, blocks, 1, 1));
}

TEST_CASE("strength 0 changes no bit, whatever the kind") {
    const Plain w = random_matrix(4, 4, 1), values = random_matrix(4, 4, 2);
    TestModule set(AdapterKind::set_weight, 4, 4), rotated(AdapterKind::oft, 4, 4);
    set.add(AdapterRole::set_weight, values);
    rotated.add(oft_blocks, Shape{4, 4, 1}, as_floats(values)).add(rescale, random_matrix(4, 1, 3));
    TestModule decomposed = lora(random_matrix(4, 2, 4), random_matrix(2, 4, 5), 1);
    decomposed.add(magnitude, random_matrix(4, 1, 6));
    for (const TestModule* module : {&set, &rotated, &decomposed}) {
        CHECK(applied(module->module, 0, w) == as_floats(w));
    }
}

TEST_CASE("values that are not finite are refused with file, tensor and position") {
    Plain down = random_matrix(4, 16, 3);
    down.at(0, 5) = std::numeric_limits<double>::infinity();
    const TestModule module = lora(random_matrix(24, 4, 2), down, 1);
    for (const auto& use :
         std::vector<std::function<void()>>{[&] { applied(module.module, 1, kW); },
                                            [&] { low_rank_pair(module.module, kFile); }}) {
        const auto error = error_of(use);
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("x.safetensors: tensor tensor1 holds inf as value 5"));
    }
}

TEST_CASE("tensors whose sizes do not agree are an error, not an access out of bounds") {
    const TestModule narrow = lora(random_matrix(24, 4, 2), random_matrix(4, 15, 3), 1);
    std::vector<float> values = as_floats(kW);
    CHECK(error_of([&] { apply_module(narrow.module, kFile, 1, values); }).kind ==
          ErrorKind::internal);
    TestModule short_up = lora(random_matrix(23, 4, 2), random_matrix(4, 16, 3), 1);
    short_up.module.n_out = 24;
    CHECK(error_of([&] { applied(short_up.module, 1, kW); }).kind == ErrorKind::internal);
    TestModule missing(AdapterKind::lora, 24, 16);
    CHECK(error_of([&] { applied(missing.module, 1, kW); }).kind == ErrorKind::internal);
    TestModule oft(AdapterKind::oft, 24, 16);
    oft.add(oft_blocks, Shape{5, 5, 5}, as_floats(random_matrix(25, 5, 2)));
    CHECK(error_of([&] { applied(oft.module, 1, kW); }).kind == ErrorKind::internal);
}

}  // namespace flux2
