// Values for tests of operations, and how far results are from what is expected.
#pragma once

#include "base/random.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flux2::test {

// Standard normal ones; they are drawn sixteen at a time.
inline std::vector<float> normal_values(int64_t n, uint64_t seed) {
    std::vector<float> values =
        draw_normal(Generator::cpu_f32, seed, static_cast<size_t>((n + 15) / 16 * 16));
    values.resize(static_cast<size_t>(n));
    return values;
}

// Evenly spread ones from -size to size.
inline std::vector<float> even_values(size_t n, uint32_t seed, float size) {
    std::vector<float> values(n);
    uint32_t state = seed * 2654435761u + 1;
    for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f * size;
    }
    return values;
}

// The root of the sum of squared differences, relative to that of squared expected values.
inline double distance(const std::vector<float>& ours, const std::vector<double>& expected) {
    REQUIRE(ours.size() == expected.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
        difference += std::pow(static_cast<double>(ours[i]) - expected[i], 2);
        size += std::pow(expected[i], 2);
    }
    return std::sqrt(difference / size);
}

}  // namespace flux2::test
