#include "compute/cpu/column_codes.hpp"

#include "formats/tensor_type.hpp"
#include "support/values.hpp"
#include "verify/file_matrix.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace flux2;

namespace {

struct CodedType {
    TensorType type;
    int bits;
};

constexpr std::array kCodedTypes = {CodedType{TensorType::q4_0, 4}, CodedType{TensorType::q4_1, 4},
                                    CodedType{TensorType::q4_k, 4}, CodedType{TensorType::q5_0, 5},
                                    CodedType{TensorType::q5_1, 5}, CodedType{TensorType::q5_k, 5},
                                    CodedType{TensorType::q6_k, 6}, CodedType{TensorType::q8_0, 8}};

// Value i of a column as its panel has it.
struct PanelValue {
    int code;
    float value;
};

PanelValue value_in(const std::vector<cpu::PanelCodes>& panel, TensorType type, int64_t i,
                    int64_t column) {
    const cpu::PanelCodes& block = panel[static_cast<size_t>(i / cpu::kCodeBlock)];
    const int64_t in_block = i % cpu::kCodeBlock;
    const int64_t at = (in_block / cpu::kCodeGroup * cpu::kCodeColumns + column) * cpu::kCodeGroup +
                       in_block % cpu::kCodeGroup;
    const int code = block.codes[static_cast<size_t>(at)];
    const auto c = static_cast<size_t>(column);
    const bool second = cpu::has_half_scales(static_cast<ggml_type>(type)) && in_block >= 16;
    const size_t half = second ? 1 : 0;
    return {code, block.scales[half][c] * static_cast<float>(code) + block.offsets[half][c]};
}

}  // namespace

TEST_CASE("codes with their scales and offsets are the values of the type") {
    constexpr int64_t kIn = 512;
    for (const CodedType& coded : kCodedTypes) {
        CAPTURE(type_name(coded.type));
        const auto type = static_cast<ggml_type>(coded.type);
        CHECK(cpu::code_bits(type) == coded.bits);
        const cli::FileMatrix matrix =
            cli::make_file_matrix(coded.type, kIn, test::normal_values(kIn * cpu::kCodeColumns, 7));
        std::vector<cpu::PanelCodes> panel(kIn / cpu::kCodeBlock);
        const size_t row_bytes = matrix.blocks.size() / cpu::kCodeColumns;
        for (int64_t column = 0; column < cpu::kCodeColumns; ++column) {
            cpu::read_codes(type, matrix.blocks.data() + static_cast<size_t>(column) * row_bytes,
                            kIn, panel.data(), column);
        }
        float largest_error = 0;
        int largest_code = 0;
        for (int64_t column = 0; column < cpu::kCodeColumns; ++column) {
            for (int64_t i = 0; i < kIn; ++i) {
                const PanelValue found = value_in(panel, coded.type, i, column);
                const float expected = matrix.values[static_cast<size_t>(column * kIn + i)];
                largest_error = std::max(largest_error, std::abs(found.value - expected));
                largest_code = std::max(largest_code, found.code);
            }
        }
        CHECK(largest_error < 1e-6f);  // values are up to 4
        CHECK(largest_code == (1 << coded.bits) - 1);
    }
}

TEST_CASE("wide codes with their scales are the values of the type") {
    constexpr int64_t kIn = 512;
    for (const CodedType& coded : kCodedTypes) {
        CAPTURE(type_name(coded.type));
        const auto type = static_cast<ggml_type>(coded.type);
        CHECK(cpu::has_wide_codes(type) == (coded.bits > 5));
        if (!cpu::has_wide_codes(type)) {
            continue;
        }
        const cli::FileMatrix matrix =
            cli::make_file_matrix(coded.type, kIn, test::normal_values(kIn * cpu::kCodeColumns, 7));
        std::vector<cpu::WidePanelCodes> panel(kIn / cpu::kCodeBlock);
        const size_t row_bytes = matrix.blocks.size() / cpu::kCodeColumns;
        float largest_error = 0;
        int least_code = 0;
        for (int64_t column = 0; column < cpu::kCodeColumns; ++column) {
            cpu::read_codes(type, matrix.blocks.data() + static_cast<size_t>(column) * row_bytes,
                            kIn, panel.data(), column);
            for (int64_t i = 0; i < kIn; ++i) {
                const cpu::WidePanelCodes& block = panel[static_cast<size_t>(i / 32)];
                const auto at = static_cast<size_t>((i % 32 / 2 * 16 + column) * 2 + i % 2);
                const size_t half = cpu::has_half_scales(type) && i % 32 >= 16 ? 1 : 0;
                const float value = block.scales[half][static_cast<size_t>(column)] *
                                    static_cast<float>(block.codes[at]);
                const float expected = matrix.values[static_cast<size_t>(column * kIn + i)];
                largest_error = std::max(largest_error, std::abs(value - expected));
                least_code = std::min<int>(least_code, block.codes[at]);
            }
        }
        CHECK(largest_error < 1e-6f);  // values are up to 4
        // Codes of Q8_0 are -127 to 127.
        CHECK(least_code == (type == GGML_TYPE_Q8_0 ? -127 : -32));
    }
}

TEST_CASE("other types are no codes") {
    for (const TensorType type : matrix_types()) {
        CAPTURE(type_name(type));
        const bool is_coded =
            std::any_of(kCodedTypes.begin(), kCodedTypes.end(),
                        [&](const CodedType& coded) { return coded.type == type; });
        CHECK((cpu::code_bits(static_cast<ggml_type>(type)) > 0) == is_coded);
    }
}
