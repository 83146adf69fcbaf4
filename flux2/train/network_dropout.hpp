// Dropout inside of the pairs of a LoRA: values of A x that a step leaves out.
#pragma once

#include <cstdint>
#include <span>

namespace flux2 {

// What each of the values [n_row, n] between A and B of module number `module` is multiplied with:
// 0 with the probability `rate`, else 1 / (1 - rate), so that sums are expected to stay what they
// are. Only the first `rank` of each row are drawn, the others are 0. The same for the same seed,
// whatever n_row is.
void draw_dropout(double rate, uint64_t seed, size_t module, int64_t rank, int64_t n_row,
                  std::span<float> factors);

}  // namespace flux2
