// What the kernel that unpacks matrices reads out of blocks, on the host, against ggml.
#include "compute/cuda/block_values.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace flux2 {
namespace {

// Blocks of random bytes, but for their scales, which are halves at these places.
template <typename T>
std::vector<uint8_t> random_blocks(size_t n, const std::vector<size_t>& scales) {
    std::mt19937 random(7);
    std::vector<uint8_t> bytes(n * T::kBytes);
    for (uint8_t& byte : bytes) {
        byte = static_cast<uint8_t>(random());
    }
    std::normal_distribution<float> normal;
    for (size_t block = 0; block < n; ++block) {
        for (const size_t scale : scales) {
            // Small ones too, which F16 holds as denormal numbers.
            const float size = block % 4 == 0 ? 1e-6f : 0.1f;
            const ggml_fp16_t half = ggml_fp32_to_fp16(size * normal(random));
            uint8_t* to = bytes.data() + block * T::kBytes + scale;
            to[0] = static_cast<uint8_t>(half & 0xff);
            to[1] = static_cast<uint8_t>(half >> 8);
        }
    }
    return bytes;
}

template <typename T>
void check_type(ggml_type type, const std::vector<size_t>& scales) {
    constexpr size_t kBlocks = 64;
    CAPTURE(ggml_type_name(type));
    REQUIRE(ggml_blck_size(type) == T::kValues);
    REQUIRE(ggml_type_size(type) == static_cast<size_t>(T::kBytes));
    const std::vector<uint8_t> bytes = random_blocks<T>(kBlocks, scales);
    std::vector<float> expected(kBlocks * T::kValues);
    ggml_get_type_traits(type)->to_float(bytes.data(), expected.data(),
                                         static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); i += 8) {
        float values[8];
        T::eight(bytes.data() + i / T::kValues * T::kBytes, static_cast<int>(i % T::kValues),
                 values);
        for (size_t j = 0; j < 8; ++j) {
            CAPTURE(i + j);
            // With a minimum too, compilers may fuse the multiplication and the subtraction.
            const float most = scales.size() > 1 ? 1e-5f : 0.0f;
            CHECK(std::abs(values[j] - expected[i + j]) <= most);
        }
    }
}

TEST_CASE("blocks are unpacked as ggml does it") {
    check_type<cuda::Q8_0>(GGML_TYPE_Q8_0, {0});
    check_type<cuda::Q4_0>(GGML_TYPE_Q4_0, {0});
    check_type<cuda::Q5_0>(GGML_TYPE_Q5_0, {0});
    check_type<cuda::Q4_K>(GGML_TYPE_Q4_K, {0, 2});
    check_type<cuda::Q5_K>(GGML_TYPE_Q5_K, {0, 2});
    check_type<cuda::Q6_K>(GGML_TYPE_Q6_K, {208});
}

TEST_CASE("plain values are read as they are") {
    const std::vector<float> values = {1, -2.5f, 0, 1e-6f, 0.1f, -65504, 3, 1e-3f};
    std::vector<ggml_fp16_t> halves(values.size());
    ggml_fp32_to_fp16_row(values.data(), halves.data(), 8);
    float of_f32[8], of_f16[8];
    cuda::PlainF32::eight(reinterpret_cast<const uint8_t*>(values.data()), 0, of_f32);
    cuda::PlainF16::eight(reinterpret_cast<const uint8_t*>(halves.data()), 0, of_f16);
    for (size_t i = 0; i < 8; ++i) {
        CHECK(of_f32[i] == values[i]);
        CHECK(of_f16[i] == ggml_fp16_to_fp32(halves[i]));
    }
}

}  // namespace
}  // namespace flux2
