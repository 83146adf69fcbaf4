#include "train/moment_codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace flux2 {
namespace {

constexpr int kPerOctave = 12;
constexpr size_t kSign = 0x80;

int most_of(MomentCode code) {
    return code == MomentCode::mean ? 127 : 255;
}

struct Levels {
    std::array<float, 256> of_code = {};  // what codes stand for, relative to the largest
    // The same without signs; then more than any value.
    std::array<float, 258> ascending = {};
};

Levels make_levels(MomentCode code) {
    Levels levels;
    levels.ascending.fill(std::numeric_limits<float>::infinity());
    levels.ascending[0] = 0;
    const int most = most_of(code);
    for (int i = 1; i <= most; ++i) {
        const auto level =
            static_cast<float>(std::exp2(static_cast<double>(i - most) / kPerOctave));
        const auto at = static_cast<size_t>(i);
        levels.ascending[at] = levels.of_code[at] = level;
        if (code == MomentCode::mean) {
            levels.of_code[kSign + at] = -level;
        }
    }
    return levels;
}

const Levels& levels_of(MomentCode code) {
    static const Levels means = make_levels(MomentCode::mean);
    static const Levels squares = make_levels(MomentCode::square);
    return code == MomentCode::mean ? means : squares;
}

// The number of the last level that is not above x, from 0 to 1.
size_t level_below(const Levels& levels, int most, float x) {
    // The bits of a float, as a number, are its logarithm with straight lines between powers of
    // two: too low by up to 0.0861, or 1.03 levels. Less one level and cut towards zero it is below
    // what is sought by two at most, and never above.
    const auto bits = static_cast<float>(std::bit_cast<int32_t>(x) - 0x3f800000);
    const int low = most - 1 + static_cast<int>(bits * (kPerOctave * 0x1p-23f));
    auto i = static_cast<size_t>(std::max(low, 0));
    i += levels.ascending[i + 1] <= x ? 1 : 0;
    i += levels.ascending[i + 1] <= x ? 1 : 0;
    return i;
}

}  // namespace

void unpack_moments(MomentCode code, std::span<const uint8_t> codes, float largest,
                    std::span<float> values) {
    const Levels& levels = levels_of(code);
    for (size_t i = 0; i < codes.size(); ++i) {
        values[i] = largest * levels.of_code[codes[i]];
    }
}

float pack_moments(MomentCode code, std::span<const float> values, std::span<const float> chances,
                   std::span<uint8_t> codes) {
    const bool has_sign = code == MomentCode::mean;
    const int most = most_of(code);
    const Levels& levels = levels_of(code);
    float largest = 0;
    for (const float value : values) {
        largest = std::max(largest, std::abs(value));
    }
    if (largest == 0) {
        std::fill(codes.begin(), codes.end(), uint8_t{0});
        return 0;
    }
    for (size_t i = 0; i < values.size(); ++i) {
        const float x = std::abs(values[i]) / largest;
        size_t c = level_below(levels, most, x);
        const float below = levels.ascending[c], above = levels.ascending[c + 1];
        c += chances[i] * (above - below) < x - below ? 1 : 0;
        c = std::max<size_t>(c, !has_sign && values[i] > 0 ? 1 : 0);
        codes[i] = static_cast<uint8_t>(c + (has_sign && c != 0 && values[i] < 0 ? kSign : 0));
    }
    return largest;
}

}  // namespace flux2
