// Random numbers of a training run. Each is a function of the run's seed, what it is for and its
// number, not of what was drawn before: a run that is resumed draws the same ones.
#pragma once

#include <cstdint>

namespace flux2 {

enum class RandomUse : uint64_t {
    order = 1,
    noise,
    noise_level,
    caption_dropout,
    flip,
    validation_noise,
    network_dropout,
    moment_rounding,
};

// A 64-bit number with random bits.
uint64_t random_bits(uint64_t seed, RandomUse use, uint64_t a, uint64_t b = 0);
// The same for many b: what they share is computed once.
class RandomSeries {
  public:
    RandomSeries(uint64_t seed, RandomUse use, uint64_t a);
    uint64_t bits(uint64_t b) const;

  private:
    uint64_t shared_;
};
// Above 0 and below 1.
double random_uniform(uint64_t seed, RandomUse use, uint64_t a, uint64_t b = 0);
// Standard normal. Uses the numbers 2b and 2b + 1 of random_uniform.
double random_normal(uint64_t seed, RandomUse use, uint64_t a, uint64_t b = 0);

}  // namespace flux2
