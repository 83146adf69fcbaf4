// Latents as images [w, h, channels] and as tokens [channels, w * h], and the positions of tokens.
#pragma once

#include "base/host_tensor.hpp"
#include "base/random.hpp"
#include "models/transformer.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace flux2 {

// Standard normal latents [w, h, channels]; the same for a seed on every device.
HostTensor draw_noise(Generator generator, uint64_t seed, int64_t w, int64_t h, int64_t channels);

// Latents at a noise level: sigma * noise + (1 - sigma) * latents, of the same shape.
HostTensor add_noise(const HostTensor& latents, const HostTensor& noise, float sigma);

// Recorded noise: tensor `noise` [1, channels, h, w] of a safetensors file. Throws bad_file.
HostTensor read_noise(const std::filesystem::path& file);

// Row by row; the channels of a token are contiguous.
HostTensor to_tokens(const HostTensor& latents);
HostTensor from_tokens(const HostTensor& tokens, int64_t w, int64_t h);

// Text token i has position (0, 0, 0, i).
std::vector<Position> text_positions(int64_t n);
// The token at row y, column x has position (time, y, x, 0). The generated picture has time 0.
std::vector<Position> image_positions(int64_t w, int64_t h, int32_t time = 0);
// Reference pictures have times 10, 20, ...
int32_t reference_time(size_t index);

}  // namespace flux2
