#include "train/counted_random.hpp"

#include <cmath>
#include <numbers>

namespace flux2 {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input changes half of
// the output's.
uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

}  // namespace

uint64_t random_bits(uint64_t seed, RandomUse use, uint64_t a, uint64_t b) {
    return RandomSeries(seed, use, a).bits(b);
}

RandomSeries::RandomSeries(uint64_t seed, RandomUse use, uint64_t a)
    : shared_(mixed(mixed(mixed(seed) ^ static_cast<uint64_t>(use)) ^ a)) {}

uint64_t RandomSeries::bits(uint64_t b) const {
    return mixed(shared_ ^ b);
}

double random_uniform(uint64_t seed, RandomUse use, uint64_t a, uint64_t b) {
    return (static_cast<double>(random_bits(seed, use, a, b) >> 12) + 0.5) * 0x1p-52;
}

double random_normal(uint64_t seed, RandomUse use, uint64_t a, uint64_t b) {
    const double radius = std::sqrt(-2 * std::log(random_uniform(seed, use, a, 2 * b)));
    return radius * std::cos(2 * std::numbers::pi * random_uniform(seed, use, a, 2 * b + 1));
}

}  // namespace flux2
