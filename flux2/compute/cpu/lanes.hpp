// Four floats side by side: what every CPU we run on can do in one instruction. Written with the
// vector types of GCC and Clang, which know all of C++'s operators; elsewhere as a plain struct.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace flux2::cpu {

constexpr int64_t kLanes = 4;

#if defined(__GNUC__)
constexpr bool kHasVectors = true;
using Lanes = float __attribute__((vector_size(16)));
// For code of newer x86 CPUs.
using EightFloats = float __attribute__((vector_size(32)));
using SixteenFloats = float __attribute__((vector_size(64)));
#else
constexpr bool kHasVectors = false;
struct Lanes {
    std::array<float, 4> v;

    Lanes& operator+=(const Lanes& o) { return *this = *this + o; }
    friend Lanes operator+(Lanes a, const Lanes& b) {
        for (size_t i = 0; i < 4; ++i) {
            a.v[i] += b.v[i];
        }
        return a;
    }
    friend Lanes operator-(Lanes a, const Lanes& b) {
        for (size_t i = 0; i < 4; ++i) {
            a.v[i] -= b.v[i];
        }
        return a;
    }
    friend Lanes operator*(Lanes a, const Lanes& b) {
        for (size_t i = 0; i < 4; ++i) {
            a.v[i] *= b.v[i];
        }
        return a;
    }
    friend Lanes operator*(float s, Lanes a) { return a * Lanes{{s, s, s, s}}; }
};
#endif

template <typename Vector>
constexpr int64_t kWidth = sizeof(Vector) / sizeof(float);

inline Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof(x));
    return x;
}

inline void store(float* to, const Lanes& x) {
    std::memcpy(to, &x, sizeof(x));
}

// The first n floats, at most four; load_some fills up with zeros.
inline Lanes load_some(const float* from, int64_t n) {
    if (n >= kLanes) {
        return load(from);
    }
    std::array<float, kLanes> some = {};
    std::copy_n(from, n, some.begin());
    return load(some.data());
}

inline void store_some(float* to, const Lanes& x, int64_t n) {
    if (n >= kLanes) {
        store(to, x);
        return;
    }
    std::array<float, kLanes> some;
    store(some.data(), x);
    std::copy_n(some.begin(), n, to);
}

// e^x to 2e-7 of itself for x in -87..88, and the nearer end's value beyond. Free of branches, so
// that compilers turn loops over it into vector code. With x = n ln 2 + r it is 2^n e^r.
inline float exp_of(float x) {
    constexpr float kRounds = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    constexpr float kLn2High = 0.693359375f;
    constexpr float kLn2Low = -2.12194440e-4f;
    x = std::min(std::max(x, -87.0f), 88.0f);
    const float shifted = x * 1.44269504f + kRounds;
    const float n = shifted - kRounds;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float sum = 1.0f / 5040 * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    // n stands in the lowest bits of `shifted`; it goes to the exponent.
    return std::bit_cast<float>(std::bit_cast<uint32_t>(sum) +
                                (std::bit_cast<uint32_t>(shifted) << 23));
}

// Of at most so many each.
inline int64_t parts_of(int64_t n, int64_t most) {
    return (n + most - 1) / most;
}

inline int64_t round_up(int64_t n, int64_t step) {
    return parts_of(n, step) * step;
}

}  // namespace flux2::cpu
