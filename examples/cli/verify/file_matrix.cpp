#include "verify/file_matrix.hpp"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <random>

namespace flux2::cli {
namespace {

bool is_slow_to_quantise(TensorType type) {
    constexpr std::array kTypes = {GGML_TYPE_IQ2_S, GGML_TYPE_IQ1_M, GGML_TYPE_IQ3_S,
                                   GGML_TYPE_IQ3_XXS};
    return std::find(kTypes.begin(), kTypes.end(), static_cast<ggml_type>(type)) != kTypes.end();
}

// Random codes, which are all valid, with a scale of 0.07 in F16: in IQ1_M the upper four bits of
// each of a block's last four words, in the other types its first two bytes.
void fill_with_codes(TensorType type, std::span<std::byte> blocks) {
    constexpr std::array<uint8_t, 4> kScale = {0x6, 0x6, 0xC, 0x2};  // the lowest bits first
    std::mt19937 random(1);
    for (std::byte& byte : blocks) {
        byte = static_cast<std::byte>(random() & 0xFF);
    }
    const size_t size = block_bytes(type);
    for (size_t start = 0; start < blocks.size(); start += size) {
        const auto block = blocks.subspan(start, size);
        if (static_cast<ggml_type>(type) == GGML_TYPE_IQ1_M) {
            for (size_t i = 0; i < kScale.size(); ++i) {
                std::byte& upper = block[size - 8 + 2 * i + 1];
                upper = (upper & std::byte{0x0F}) | static_cast<std::byte>(kScale[i] << 4);
            }
        } else {
            block[0] = static_cast<std::byte>(kScale[1] << 4 | kScale[0]);
            block[1] = static_cast<std::byte>(kScale[3] << 4 | kScale[2]);
        }
    }
}

}  // namespace

FileMatrix make_file_matrix(TensorType type, int64_t n_in, std::span<const float> values) {
    const auto n = static_cast<int64_t>(values.size());
    FileMatrix matrix = {std::vector<std::byte>(data_bytes(type, n)),
                         std::vector<float>(values.size())};
    if (is_slow_to_quantise(type)) {
        fill_with_codes(type, matrix.blocks);
    } else {
        from_f32(type, values, n_in, matrix.blocks);
    }
    to_f32(type, matrix.blocks, matrix.values);
    return matrix;
}

}  // namespace flux2::cli
