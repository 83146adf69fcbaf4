// Errors computed by hand from the properties of a type.
#include "output_error.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flux2::convert {
namespace {

using enum TensorType;

// Inputs that are all zero but for the named columns, which are 1 in every input.
std::vector<float> ones_at(size_t row_elements, const std::vector<size_t>& columns) {
    std::vector<float> inputs(row_elements * kInputs, 0.0f);
    for (const size_t column : columns) {
        for (size_t i = 0; i < kInputs; ++i) {
            inputs[column * kInputs + i] = 1.0f;
        }
    }
    return inputs;
}

std::vector<float> normal_inputs(int64_t row_elements) {
    return typical_inputs("single_blocks.0.linear1.weight", {row_elements, 1});
}

double mean_square(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) {
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return sum / static_cast<double>(values.size());
}

TEST_CASE("the error is that of the output, not of the weights") {
    // The step of this Q8_0 block is 127 / 127 = 1: 127 stays, 0.25 is rounded to 0.
    std::vector<float> row(32, 0.0f);
    row[0] = 127.0f;
    row[1] = 0.25f;
    CHECK(output_error(q8_0, row, 32, ones_at(32, {0})) == 0.0);
    CHECK(output_error(q8_0, row, 32, ones_at(32, {1})) == 1.0);
    CHECK(output_error(q8_0, row, 32, ones_at(32, {0, 1})) ==
          doctest::Approx(0.25 / 127.25).epsilon(1e-6));
}

TEST_CASE("a matrix of constant rows is exact in two bits") {
    // Q2_K: 15 steps of 1 for the least value of each block, and nothing above it.
    const std::vector<float> rows(4 * 256, -15.0f);
    CHECK(output_error(q2_k, rows, 256, normal_inputs(256)) == 0.0);
    CHECK(output_error(q2_k, std::vector<float>(256, 0.0f), 256, normal_inputs(256)) == 0.0);
}

TEST_CASE("outliers make the same bits worth less") {
    std::vector<float> even(256);
    for (size_t i = 0; i < even.size(); ++i) {
        even[i] = static_cast<float>(i * 37 % 256) / 128.0f - 1.0f;
    }
    std::vector<float> outliers = even;
    for (size_t i = 5; i < outliers.size(); i += 32) {
        outliers[i] = 40.0f;
    }
    // The outliers' own columns have input 0: only their effect on the other values of the block
    // counts.
    std::vector<float> inputs = normal_inputs(256);
    for (size_t i = 5; i < outliers.size(); i += 32) {
        std::fill_n(inputs.begin() + static_cast<ptrdiff_t>(i * kInputs), kInputs, 0.0f);
    }
    for (const TensorType type : {q8_0, q5_0, q4_0}) {
        CAPTURE(type_name(type));
        CHECK(output_error(type, outliers, 256, inputs) >
              10 * output_error(type, even, 256, inputs));
    }
}

TEST_CASE("more bits, less error") {
    const std::vector<float> rows = normal_inputs(1024);  // 16 rows of normal numbers
    double last = 1.0;
    for (const TensorType type : candidate_types(1024)) {
        CAPTURE(type_name(type));
        const double error =
            output_error(type, rows, 1024, typical_inputs("blk.0.ffn_down.weight", {1024, 16}));
        CHECK(error < last);
        CHECK(error > 0.0);
        last = error;
    }
    // A Q8_0 step is max / 127 and its error step / sqrt(12); the largest of 32 normal numbers is
    // about 2.1: 0.0048.
    CHECK(last == doctest::Approx(0.0048).epsilon(0.15));
}

TEST_CASE("candidates fit the rows, smallest first") {
    CHECK(candidate_types(512) == std::vector<TensorType>{q2_k, q3_k, q4_k, q5_k, q6_k, q8_0});
    CHECK(candidate_types(96) == std::vector<TensorType>{q4_0, q5_0, q8_0});
    CHECK(candidate_types(40).empty());
}

TEST_CASE("inputs have the statistics of the layer before a matrix") {
    // E[silu(a)^2] of a normal a is 0.356 by numeric integration.
    constexpr double kGated = 0.356;
    const auto normal = typical_inputs("double_blocks.0.img_attn.qkv.weight", {4096, 64});
    CHECK(mean_square(normal) == doctest::Approx(1.0).epsilon(0.03));
    for (const char* name : {"double_blocks.1.txt_mlp.2.weight", "blk.3.ffn_down.weight"}) {
        CHECK(mean_square(typical_inputs(name, {4096, 64})) ==
              doctest::Approx(kGated).epsilon(0.06));
    }
    // Attention's 1024 columns, then the MLP's 3072.
    const auto joined = typical_inputs("single_blocks.1.linear2.weight", {4096, 1024});
    const std::span<const float> all(joined);
    CHECK(mean_square(all.first(1024 * kInputs)) == doctest::Approx(1.0).epsilon(0.06));
    CHECK(mean_square(all.subspan(1024 * kInputs)) == doctest::Approx(kGated).epsilon(0.06));
}

TEST_CASE("sampled rows are spread over the whole matrix") {
    // Every value of row r is r.
    constexpr int64_t kRows = 1024;
    std::vector<float> values(32 * kRows);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i / 32);
    }
    const ModelTensor matrix{"m",
                             {32, kRows},
                             {{.type = f32,
                               .n_elements = 32 * kRows,
                               .bytes = std::as_bytes(std::span(values)),
                               .scaled = nullptr,
                               .first = 0}}};
    const std::vector<float> sample = sample_rows(matrix);
    REQUIRE(sample.size() == 256 * 32);
    for (size_t row = 0; row < 256; ++row) {
        CHECK(sample[row * 32] == static_cast<float>(4 * row));
        CHECK(sample[row * 32 + 31] == static_cast<float>(4 * row));
    }
}

}  // namespace
}  // namespace flux2::convert
