// Moments in 8 bits against blocks computed by hand.
#include "train/moment_codes.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace flux2 {
namespace {

struct Packed {
    float largest = 0;
    std::vector<uint8_t> codes;
};

Packed pack(MomentCode code, const std::vector<float>& values, float chance) {
    Packed packed;
    packed.codes.resize(values.size());
    packed.largest =
        pack_moments(code, values, std::vector<float>(values.size(), chance), packed.codes);
    return packed;
}

std::vector<float> unpack(MomentCode code, const Packed& packed) {
    std::vector<float> values(packed.codes.size());
    unpack_moments(code, packed.codes, packed.largest, values);
    return values;
}

TEST_CASE("powers of two below the largest have codes twelve apart, and stay what they are") {
    const std::vector<float> means = {6, -3, 1.5f, 0, -0.75f};
    const Packed packed = pack(MomentCode::mean, means, 0.0f);
    CHECK(packed.largest == 6);
    CHECK(packed.codes == std::vector<uint8_t>{127, 128 + 115, 103, 0, 128 + 91});
    CHECK(unpack(MomentCode::mean, packed) == means);
    const std::vector<float> squares = {6, 3, 0, 0.75f, 6 * 0x1p-21f};
    const Packed other = pack(MomentCode::square, squares, 0.0f);
    CHECK(other.codes == std::vector<uint8_t>{255, 243, 0, 219, 3});
    CHECK(unpack(MomentCode::square, other) == squares);
    CHECK(pack(MomentCode::mean, {0, 0}, 0.5f).codes == std::vector<uint8_t>{0, 0});
    CHECK(unpack(MomentCode::mean, pack(MomentCode::mean, {0, 0}, 0.5f)) ==
          std::vector<float>{0, 0});
}

TEST_CASE("values between two powers take either, as chance says") {
    // 2^(-5/12) = 0.74915 and 2^(-4/12) = 0.79370: 0.75 is 0.0190 of the way from one to the other.
    for (const auto& [chance, code] : {std::pair{0.018f, 123}, {0.020f, 122}}) {
        CHECK(pack(MomentCode::mean, {1, -0.75f}, chance).codes[1] == 128 + code);
        CHECK(pack(MomentCode::square, {1, 0.75f}, chance).codes[1] == 128 + code);
    }
    // The mean over all chances is the value.
    constexpr int kMany = 1000;
    for (const float value : {0.9f, -0.61f, 0.2f, -0.003f, 0.0004f}) {
        double sum = 0;
        for (int i = 0; i < kMany; ++i) {
            const Packed packed =
                pack(MomentCode::mean, {1, value}, (static_cast<float>(i) + 0.5f) / kMany);
            sum += static_cast<double>(unpack(MomentCode::mean, packed)[1]);
        }
        CHECK(std::abs(sum / kMany - static_cast<double>(value)) <
              1e-4 * std::abs(static_cast<double>(value)) + 1e-6);
    }
}

TEST_CASE("small means can become zero, small squares take the smallest power") {
    CHECK(pack(MomentCode::mean, {1, 1e-9f}, 0.5f).codes[1] == 0);
    CHECK(pack(MomentCode::square, {1, 1e-12f}, 0.5f).codes[1] == 1);
    const float smallest = unpack(MomentCode::square, {1, {1}})[0];
    CHECK(static_cast<double>(smallest) == doctest::Approx(std::exp2(-254.0 / 12)));
}

}  // namespace
}  // namespace flux2
