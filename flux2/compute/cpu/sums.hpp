// Sums that become vector code.
#pragma once

#include "compute/cpu/instructions.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace flux2::cpu {

constexpr int64_t kChains = 16;  // as many floats as the longest vectors have

// The sum of f(i) for i below n, in sixteen independent chains.
template <typename F>
FLUX2_INLINE float sum_over(int64_t n, const F& f) {
    std::array<float, kChains> chains = {};
    int64_t first = 0;
    for (; first + kChains <= n; first += kChains) {
        for (int64_t i = 0; i < kChains; ++i) {
            chains[static_cast<size_t>(i)] += f(first + i);
        }
    }
    for (; first < n; ++first) {
        chains[0] += f(first);
    }
    return std::accumulate(chains.begin(), chains.end(), 0.0f);
}

}  // namespace flux2::cpu
