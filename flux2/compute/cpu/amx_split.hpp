// Floats as sums of two numbers in BF16, 16 at a time, for what becomes AMX tiles.
#pragma once

#include "compute/cpu/instructions.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#if defined(FLUX2_X86)

namespace flux2::cpu {

constexpr int64_t kVector = 16;  // floats

using Floats = float __attribute__((vector_size(kVector * 4)));
using Bits = uint32_t __attribute__((vector_size(kVector * 4)));

// 32 values as a line of a tile: the first of a, the first of b, the second of a, and so on.
struct SplitLine {
    Bits rounded, rest;
};

FLUX2_AVX512 FLUX2_INLINE Bits round_to_bf16(const Floats& x) {
    Bits bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return (bits + 0x8000u) & 0xffff0000u;
}

FLUX2_AVX512 FLUX2_INLINE Floats what_is_left(const Floats& x, const Bits& rounded) {
    Floats y;
    std::memcpy(&y, &rounded, sizeof(y));
    return x - y;
}

FLUX2_AVX512 FLUX2_INLINE SplitLine split(const Floats& a, const Floats& b) {
    const Bits rounded_a = round_to_bf16(a);
    const Bits rounded_b = round_to_bf16(b);
    return {rounded_a >> 16 | rounded_b, round_to_bf16(what_is_left(a, rounded_a)) >> 16 |
                                             round_to_bf16(what_is_left(b, rounded_b))};
}

FLUX2_AVX512 FLUX2_INLINE void store(uint16_t* to, const Bits& line) {
    std::memcpy(to, &line, sizeof(line));
}

// The first n floats, at most 16, then zeros.
FLUX2_AVX512 FLUX2_INLINE Floats load_floats(const float* from, int64_t n) {
    Floats x;
    if (n >= kVector) {
        std::memcpy(&x, from, sizeof(x));
        return x;
    }
    std::array<float, kVector> some = {};
    std::copy_n(from, std::max<int64_t>(n, 0), some.begin());
    std::memcpy(&x, some.data(), sizeof(x));
    return x;
}

FLUX2_AVX512 FLUX2_INLINE void store_floats(float* to, const Floats& x, int64_t n) {
    if (n >= kVector) {
        std::memcpy(to, &x, sizeof(x));
        return;
    }
    std::array<float, kVector> some;
    std::memcpy(some.data(), &x, sizeof(x));
    std::copy_n(some.begin(), n, to);
}

}  // namespace flux2::cpu

#endif
