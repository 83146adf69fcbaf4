#include "compute/cpu/code_panels.hpp"
#include "compute/cpu/code_panels_forms.hpp"

#include "support/needs.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

using namespace flux2;

namespace {

template <typename Row = cpu::RowCodes>
std::vector<Row> round(const std::vector<float>& values) {
    std::vector<Row> blocks(values.size() / cpu::kCodeBlock);
    cpu::round_to_codes(values.data(), static_cast<int64_t>(values.size()), blocks.data());
    return blocks;
}

// n_rows rows times two panels of three blocks; all codes of the columns are equal.
struct EqualCodes {
    int bits;
    uint8_t code;
    int8_t x;
    int64_t n_rows;
    bool adds;
    bool in_halves = false;
};

constexpr float kScale = 0.5f, kOffset = -2, kBefore = 10;

template <typename Row, typename Panel>
void check_equal_codes(const EqualCodes& c, const Row& row, const Panel& panel, float offset) {
    constexpr int64_t kBlocks = 3, kPanels = 2;
    constexpr int64_t kStride = kPanels * cpu::kCodeColumns + 8;
    const std::vector<Row> rows(static_cast<size_t>(c.n_rows * kBlocks), row);
    const std::vector<Panel> panels(kBlocks * kPanels, panel);
    std::vector<float> results(static_cast<size_t>(c.n_rows * kStride), kBefore);
    cpu::multiply(cpu::CodeProduct<Row, Panel>{.rows = rows.data(),
                                               .row_stride = kBlocks,
                                               .n_rows = c.n_rows,
                                               .n_blocks = kBlocks,
                                               .panels = panels.data(),
                                               .n_panels = kPanels,
                                               .bits = c.bits,
                                               .in_halves = c.in_halves,
                                               .results = results.data(),
                                               .result_stride = kStride,
                                               .adds = c.adds});
    const auto code = static_cast<float>(panel.codes[0]);
    const float value = kScale * code + offset;
    const float second_value = c.in_halves ? 2 * kScale * code + 4 * offset : value;
    const float x = row.scale * static_cast<float>(row.codes[0]);
    const float expected = kBlocks * 16 * x * (value + second_value) + (c.adds ? kBefore : 0);
    for (int64_t i = 0; i < c.n_rows * kStride; ++i) {
        CAPTURE(i);
        // Between the rows nothing is written.
        const bool between = i % kStride >= kPanels * cpu::kCodeColumns;
        CHECK(results[static_cast<size_t>(i)] == (between ? kBefore : expected));
    }
}

void check_equal_codes(const EqualCodes& c) {
    const float x = 0.25f * static_cast<float>(c.x);
    cpu::RowCodes row = {.scale = 0.25f, .sums = {32 * x, 16 * x, 16 * x}, .codes = {}};
    row.codes.fill(c.x);
    cpu::PanelCodes panel = {};
    panel.scales[0].fill(kScale);
    panel.offsets[0].fill(kOffset);
    // Those of second halves are used only where there are any.
    panel.scales[1].fill(2 * kScale);
    panel.offsets[1].fill(4 * kOffset);
    panel.codes.fill(c.code);
    check_equal_codes(c, row, panel, kOffset);
}

// Codes of 16 bits.
struct EqualWideCodes {
    int16_t code, x;
    int64_t n_rows;
    bool adds, in_halves;
};

void check_equal_wide_codes(const EqualWideCodes& c) {
    cpu::WideRowCodes row = {.scale = 0.25f, .codes = {}};
    row.codes.fill(c.x);
    cpu::WidePanelCodes panel = {};
    panel.scales[0].fill(kScale);
    panel.scales[1].fill(2 * kScale);
    panel.codes.fill(c.code);
    check_equal_codes({.bits = 8,
                       .code = 0,
                       .x = 0,
                       .n_rows = c.n_rows,
                       .adds = c.adds,
                       .in_halves = c.in_halves},
                      row, panel, /*offset=*/0);
}

// The instructions that multiply codes in this process.
#if defined(FLUX2_X86)
bool uses_avx512_vnni() {
    return cpu::has_avx512_vnni();
}
bool uses_avx_vnni() {
    return cpu::has_avx_vnni() && !cpu::has_avx512_vnni();
}
#else
bool uses_avx512_vnni() {
    return false;
}
bool uses_avx_vnni() {
    return false;
}
#endif

void check_largest_codes() {
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 11, 12, 25}) {
        CAPTURE(n_rows);
        for (const int8_t x : {int8_t{127}, int8_t{-127}, int8_t{1}}) {
            check_equal_codes({.bits = 4, .code = 15, .x = x, .n_rows = n_rows, .adds = false});
            check_equal_codes({.bits = 5, .code = 31, .x = x, .n_rows = n_rows, .adds = true});
            check_equal_codes(
                {.bits = 5, .code = 31, .x = x, .n_rows = n_rows, .adds = true, .in_halves = true});
            check_equal_codes({.bits = 6, .code = 63, .x = x, .n_rows = n_rows, .adds = true});
            check_equal_codes({.bits = 6,
                               .code = 63,
                               .x = x,
                               .n_rows = n_rows,
                               .adds = false,
                               .in_halves = true});
            check_equal_codes({.bits = 8, .code = 255, .x = x, .n_rows = n_rows, .adds = true});
            check_equal_codes({.bits = 8,
                               .code = 255,
                               .x = x,
                               .n_rows = n_rows,
                               .adds = false,
                               .in_halves = true});
        }
    }
}

}  // namespace

TEST_CASE("rows keep 8 bits of the largest value of every 32") {
    std::vector<float> values = test::normal_values(4 * 32, 3);
    values[40] = 1000;
    std::fill(values.begin() + 64, values.begin() + 96, 0.0f);
    const std::vector<cpu::RowCodes> blocks = round(values);
    for (size_t block = 0; block < blocks.size(); ++block) {
        CAPTURE(block);
        float largest = 0;
        std::array<double, 2> sums = {};
        for (size_t i = 0; i < 32; ++i) {
            const float value = values[block * 32 + i];
            const float rounded = blocks[block].scale * static_cast<float>(blocks[block].codes[i]);
            CHECK(std::abs(rounded - value) <= 0.5001f * blocks[block].scale);
            largest = std::max(largest, std::abs(value));
            sums[i / 16] += static_cast<double>(rounded);
        }
        CHECK(blocks[block].scale == doctest::Approx(largest / 127));
        const std::array<double, 3> expected = {sums[0] + sums[1], sums[0], sums[1]};
        for (size_t i = 0; i < expected.size(); ++i) {
            const auto found = static_cast<double>(blocks[block].sums[i]);
            CHECK(std::abs(found - expected[i]) <= 1e-5 * static_cast<double>(largest));
        }
    }
}

TEST_CASE("wide rows keep 16 bits of the largest value of every 32") {
    std::vector<float> values = test::normal_values(4 * 32, 3);
    values[40] = 1000;
    values[41] = -1000;
    std::fill(values.begin() + 64, values.begin() + 96, 0.0f);
    const auto blocks = round<cpu::WideRowCodes>(values);
    for (size_t block = 0; block < blocks.size(); ++block) {
        CAPTURE(block);
        float largest = 0;
        for (size_t i = 0; i < 32; ++i) {
            const float value = values[block * 32 + i];
            const float rounded = blocks[block].scale * static_cast<float>(blocks[block].codes[i]);
            // Half a step, and what the product of scale and code is rounded by.
            CHECK(std::abs(rounded - value) <= 0.503f * blocks[block].scale);
            largest = std::max(largest, std::abs(value));
        }
        CHECK(blocks[block].scale == doctest::Approx(largest / 32767));
    }
    CHECK(blocks[1].codes[8] == 32767);
    CHECK(blocks[1].codes[9] == -32767);
}

TEST_CASE("values whose inverse overflows count as zeros") {
    for (const float tiny : {1e-31f, 1e-40f}) {
        const auto wide = round<cpu::WideRowCodes>(std::vector<float>(32, tiny));
        CHECK(wide[0].codes == std::array<int16_t, 32>{});
        CHECK(std::isfinite(wide[0].scale));
        const std::vector<cpu::RowCodes> blocks = round(std::vector<float>(32, tiny));
        CHECK(blocks[0].codes == std::array<int8_t, 32>{});
        CHECK(blocks[0].sums == std::array<float, 3>{});
        CHECK(std::isfinite(blocks[0].scale));
    }
}

TEST_CASE("a value that is not finite is not lost") {
    for (const float odd :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> values = test::normal_values(64, 3);
        values[37] = odd;
        const std::vector<cpu::RowCodes> blocks = round(values);
        CHECK(std::isfinite(blocks[0].scale));
        CHECK(std::isnan(blocks[1].scale));
        CHECK(std::isnan(blocks[1].sums[1]));
        const auto wide = round<cpu::WideRowCodes>(values);
        CHECK(std::isfinite(wide[0].scale));
        CHECK(std::isnan(wide[1].scale));
    }
}

TEST_CASE("values whose sum is infinite are finite") {
    const std::vector<cpu::RowCodes> blocks = round(std::vector<float>(32, 3e38f));
    CHECK(blocks[0].scale == doctest::Approx(3e38 / 127));
    CHECK(blocks[0].codes[0] == 127);
}

TEST_CASE("the largest codes do not overflow, for any number of rows") {
    check_largest_codes();
}

// With the instructions at hand; tests named tile_linear_... hide the newest.
TEST_CASE("the largest codes do not overflow with AVX-512's integer instructions" *
          test::needs(uses_avx512_vnni(), "needs AVX-512 VNNI")) {
    check_largest_codes();
}

TEST_CASE("the largest codes do not overflow with AVX's integer instructions" *
          test::needs(uses_avx_vnni(), "needs AVX-VNNI")) {
    check_largest_codes();
}

TEST_CASE("the largest codes do not overflow with Arm's dot products" *
          test::needs(cpu::has_arm_dot(), "needs Arm's dot products")) {
    check_largest_codes();
}

TEST_CASE("the largest wide codes do not overflow, for any number of rows") {
    for (const int64_t n_rows : {1, 2, 3, 4, 5, 25}) {
        CAPTURE(n_rows);
        // A power of two: sums in 32 bits become floats without rounding.
        for (const int16_t x : {int16_t{-32768}, int16_t{16384}, int16_t{1}}) {
            for (const bool in_halves : {false, true}) {
                check_equal_wide_codes({-128, x, n_rows, /*adds=*/true, in_halves});
                check_equal_wide_codes({127, x, n_rows, /*adds=*/false, in_halves});
            }
        }
    }
}
