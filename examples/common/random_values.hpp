// Random numbers for measurements and comparisons.
#pragma once

#include "base/random.hpp"

#include <cstdint>
#include <map>
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

// The same, kept by seed: drawing takes longer than most operations that are compared.
class RandomValues {
  public:
    std::vector<float> get(uint64_t seed, int64_t n, float size = 1) {
        std::vector<float>& kept = drawn_[seed];
        if (kept.size() < static_cast<size_t>(n)) {
            kept = random_values(seed, n);  // begins with the values of fewer
        }
        std::vector<float> values(kept.begin(), kept.begin() + n);
        for (float& value : values) {
            value *= size;
        }
        return values;
    }

  private:
    std::map<uint64_t, std::vector<float>> drawn_;
};

}  // namespace flux2::cli
