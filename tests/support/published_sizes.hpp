// Sizes of published networks, as their own configuration files give them.
#pragma once

#include "networks/sizes.hpp"

namespace flux2::test {

inline constexpr TransformerSizes kKlein4b = {.hidden = 3072,
                                              .head_dim = 128,
                                              .mlp = 9216,
                                              .text_width = 7680,
                                              .channels = 128,
                                              .n_double = 5,
                                              .n_single = 20,
                                              .guidance = false};
inline constexpr TextEncoderSizes kQwen3_4b = {.hidden = 2560,
                                               .ffn = 9728,
                                               .head_dim = 128,
                                               .n_head = 32,
                                               .n_head_kv = 8,
                                               .n_layers = 36,
                                               .vocabulary = 151936};

}  // namespace flux2::test
