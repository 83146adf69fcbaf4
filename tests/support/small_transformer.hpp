// Sizes of a transformer that computes in milliseconds.
#pragma once

#include "networks/sizes.hpp"

#include <cstdint>

namespace flux2::test {

inline constexpr TransformerSizes small_transformer(int64_t n_double, int64_t n_single,
                                                    bool guidance = false) {
    return {.hidden = 64,
            .head_dim = 32,
            .mlp = 96,
            .text_width = 48,
            .channels = 16,
            .n_double = n_double,
            .n_single = n_single,
            .guidance = guidance};
}

}  // namespace flux2::test
