// A rough picture of latents without the decoder: a linear map from the channels of a token to 2 x
// 2 pixels, fitted to the decoder's output for random latents.
#pragma once

#include <flux2/image.hpp>
#include "base/host_tensor.hpp"
#include "models/autoencoder.hpp"

#include <cstdint>

namespace flux2 {

constexpr int64_t kPreviewOutputs = 12;

// The map [channels + 1, kPreviewOutputs]: for each of 2 x 2 pixels and 3 colours the weights of
// the channels, then a constant. Decodes one small picture.
HostTensor fit_preview(Autoencoder& autoencoder);

// Tokens [channels, w * h] -> a picture of 2w x 2h pixels.
Image draw_preview(const HostTensor& map, const HostTensor& tokens, int64_t w, int64_t h);

}  // namespace flux2
