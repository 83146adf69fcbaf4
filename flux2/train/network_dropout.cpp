#include "train/network_dropout.hpp"

#include "train/counted_random.hpp"

namespace flux2 {

void draw_dropout(double rate, uint64_t seed, size_t module, int64_t rank, int64_t n_row,
                  std::span<float> factors) {
    const auto kept = static_cast<float>(1 / (1 - rate));
    const auto n_drawn = static_cast<size_t>(rank);
    const auto width = static_cast<size_t>(n_row);
    for (size_t i = 0; i < factors.size(); ++i) {
        const size_t token = i / width, place = i % width;
        const bool is_kept =
            place < n_drawn && random_uniform(seed, RandomUse::network_dropout, module,
                                              token * n_drawn + place) >= rate;
        factors[i] = is_kept ? kept : 0.0f;
    }
}

}  // namespace flux2
