// Moments of an optimiser in 8 bits. A block of 256 values has one factor, its largest magnitude,
// and codes for powers of 2^(1/12) below it. Means take a sign and 127 powers, down to 2^-10.5;
// squares 255 powers, down to 2^-21.2. Rounding is stochastic and unbiased. With rounding to
// nearest, a moment that changes by less than one level (6 %) per step would never move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace flux2 {

constexpr size_t kMomentBlock = 256;

enum class MomentCode {
    mean,    // 0: zero; else the power in 7 bits, 127 the largest, and the sign in the highest bit
    square,  // 0: zero; else the power, 255 the largest. Smaller values take the smallest power
             // instead of zero, since they are divided by.
};

// The values of a block of at most kMomentBlock.
void unpack_moments(MomentCode code, std::span<const uint8_t> codes, float largest,
                    std::span<float> values);
// Sets the codes of a block and returns its largest magnitude. `chances`: numbers from 0 to below 1
// that decide about values between two powers.
float pack_moments(MomentCode code, std::span<const float> values, std::span<const float> chances,
                   std::span<uint8_t> codes);

}  // namespace flux2
