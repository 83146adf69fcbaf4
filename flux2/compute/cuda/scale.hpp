// F16 ends at 65504, and values inside the autoencoder go beyond. What a convolution reads is
// therefore kept in F16 as the value times kScale; its result is multiplied back.
#pragma once

namespace flux2::cuda {

constexpr float kScale = 1.0f / 64;
constexpr float kUnscale = 64;

}  // namespace flux2::cuda
