// Random numbers for measurements and comparisons.
#pragma once

#include "base/random.hpp"

#include <cstdint>
#include <vector>

namespace flux2::cli {

// n standard normal values times `size`, the same for a seed.
inline std::vector<float> random_values(uint64_t seed, int64_t n, float size = 1) {
    constexpr int64_t kStep = 16;  // values are drawn in groups of 16
    std::vector<float> values =
        draw_normal(Generator::cpu_f32, seed, static_cast<size_t>((n + kStep - 1) / kStep * kStep));
    values.resize(static_cast<size_t>(n));
    for (float& value : values) {
        value *= size;
    }
    return values;
}

}  // namespace flux2::cli
