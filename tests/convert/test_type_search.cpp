// Cases small enough to solve by hand.
#include "support/support.hpp"
#include "type_search.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace flux2::convert {
namespace {

using enum TensorType;

// Errors that halve with each bit: the same for every matrix but for a factor.
MeasuredMatrix matrix(const std::string& name, uint64_t bytes_per_bit, double factor) {
    return {name,
            1,
            {{q2_k, 2 * bytes_per_bit, factor * 0.32},
             {q3_k, 3 * bytes_per_bit, factor * 0.16},
             {q4_k, 4 * bytes_per_bit, factor * 0.08},
             {q8_0, 8 * bytes_per_bit, factor * 0.005}}};
}

uint64_t bytes_of(const std::vector<MeasuredMatrix>& matrices, const Selection& selection) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
        bytes += matrices[i].candidates[selection[i]].bytes;
    }
    return bytes;
}

TEST_CASE("an error limit takes the smallest type within it") {
    const std::vector<MeasuredMatrix> matrices = {matrix("a", 100, 1.0), matrix("b", 100, 2.0),
                                                  matrix("exact", 100, 0.0)};
    CHECK(search_by_error(matrices, 0.16) == Selection{1, 2, 0});
    CHECK(search_by_error(matrices, 0.159) == Selection{2, 3, 0});
    CHECK(search_by_error(matrices, 1.0) == Selection{0, 0, 0});
    const auto error = test::error_of([&] { search_by_error(matrices, 0.001); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("keeps b within"));  // the worst of the two
    CHECK(error.mentions("0.01"));
}

TEST_CASE("bytes go first where they take most off the error") {
    // b has twice the error, so the same step gains four times as much there.
    const std::vector<MeasuredMatrix> matrices = {matrix("a", 100, 1.0), matrix("b", 100, 2.0)};
    CHECK(search_by_size(matrices, 400) == Selection{0, 0});
    CHECK(search_by_size(matrices, 499) == Selection{0, 0});
    CHECK(search_by_size(matrices, 500) == Selection{0, 1});
    // a from 0.32 to 0.16 and b from 0.32 to 0.16 have the same gain: the first matrix comes first.
    CHECK(search_by_size(matrices, 600) == Selection{1, 1});
    CHECK(search_by_size(matrices, 700) == Selection{1, 2});
    CHECK(search_by_size(matrices, 100000) == Selection{3, 3});
}

TEST_CASE("of two equal errors of equal weight the small matrix is mended first") {
    const std::vector<MeasuredMatrix> matrices = {matrix("large", 1000, 1.0),
                                                  matrix("small", 10, 1.0)};
    CHECK(search_by_size(matrices, 2020 + 60) == Selection{0, 3});
}

TEST_CASE("weighted by its size a matrix gets bits for its error alone") {
    std::vector<MeasuredMatrix> matrices = {matrix("large", 1000, 1.0), matrix("small", 10, 1.0),
                                            matrix("worse", 100, 1.5)};
    for (MeasuredMatrix& m : matrices) {
        m.weight = static_cast<double>(m.candidates.front().bytes);
    }
    // Room for one bit more in all of them, then for one in the worse alone.
    CHECK(search_by_size(matrices, 3 * 1110) == Selection{1, 1, 1});
    CHECK(search_by_size(matrices, 2 * 1110 + 100) == Selection{0, 0, 1});
}

TEST_CASE("a matrix that is exact in the smallest type gets no more") {
    const std::vector<MeasuredMatrix> matrices = {matrix("constant", 10, 0.0),
                                                  matrix("other", 10, 1.0)};
    CHECK(search_by_size(matrices, 1000) == Selection{0, 3});
}

TEST_CASE("a type that is larger and no better is passed over") {
    const std::vector<MeasuredMatrix> matrices = {
        {"m", 1, {{q4_0, 100, 0.2}, {q5_0, 120, 0.3}, {q8_0, 170, 0.01}}}};
    CHECK(search_by_size(matrices, 169) == Selection{0});
    CHECK(search_by_size(matrices, 170) == Selection{2});
}

TEST_CASE("a step that does not fit bars the later ones of its matrix, smaller or not") {
    const std::vector<MeasuredMatrix> matrices = {
        {"m", 1, {{q4_0, 100, 0.4}, {q5_0, 160, 0.2}, {q8_0, 170, 0.195}}}};
    CHECK(search_by_size(matrices, 159) == Selection{0});
    CHECK(search_by_size(matrices, 160) == Selection{1});
    CHECK(search_by_size(matrices, 170) == Selection{2});
}

TEST_CASE("more bytes never mean more error, and none too many are used") {
    std::vector<MeasuredMatrix> matrices;
    for (size_t i = 0; i < 12; ++i) {
        matrices.push_back(matrix("m", 7 + 13 * i % 40, 0.5 + 0.31 * static_cast<double>(i % 5)));
    }
    const uint64_t least = least_bytes(matrices);
    double last = mean_error(matrices, Selection(matrices.size(), 0));
    for (uint64_t bytes = least; bytes < 4 * least + 10; ++bytes) {
        const Selection selection = search_by_size(matrices, bytes);
        CHECK(bytes_of(matrices, selection) <= bytes);
        const double error = mean_error(matrices, selection);
        CHECK(error <= last);
        last = error;
    }
    CHECK(search_by_size(matrices, 4 * least) == Selection(matrices.size(), 3));
}

TEST_CASE("the mean error is the root of the weighted mean square") {
    std::vector<MeasuredMatrix> matrices = {{"a", 1, {{q8_0, 1, 0.3}}}, {"b", 1, {{q8_0, 1, 0.4}}}};
    CHECK(mean_error(matrices, {0, 0}) == doctest::Approx(std::sqrt(0.125)));
    matrices[1].weight = 3;
    CHECK(mean_error(matrices, {0, 0}) == doctest::Approx(std::sqrt(0.1425)));
}

}  // namespace
}  // namespace flux2::convert
