#include "pipeline/latents.hpp"

#include "base/check.hpp"
#include "formats/tensor_source.hpp"

namespace flux2 {
namespace {

// Calls f(index in the image, index in the tokens) for every value.
template <typename F>
void for_values(int64_t n_tokens, int64_t channels, const F& f) {
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < n_tokens; ++i) {
            f(static_cast<size_t>(c * n_tokens + i), static_cast<size_t>(i * channels + c));
        }
    }
}

}  // namespace

HostTensor draw_noise(Generator generator, uint64_t seed, int64_t w, int64_t h, int64_t channels) {
    HostTensor noise({w, h, channels, 1});
    noise.data = draw_normal(generator, seed, noise.data.size());
    return noise;
}

HostTensor add_noise(const HostTensor& latents, const HostTensor& noise, float sigma) {
    HostTensor noisy = noise;
    for (size_t i = 0; i < noisy.data.size(); ++i) {
        noisy.data[i] = sigma * noise.data[i] + (1.0f - sigma) * latents.data[i];
    }
    return noisy;
}

HostTensor read_noise(const std::filesystem::path& file) {
    HostTensor noise = read_tensor(TensorSource::open(file), "noise");
    check(noise.ne[3] == 1 && noise.elements() > 0, ErrorKind::bad_file, file.string(),
          ": noise is of shape [", noise.ne[3], ", ", noise.ne[2], ", ", noise.ne[1], ", ",
          noise.ne[0], "], expected [1, channels, height, width]");
    return noise;
}

HostTensor to_tokens(const HostTensor& latents) {
    HostTensor tokens({latents.ne[2], latents.ne[0] * latents.ne[1], 1, 1});
    for_values(tokens.ne[1], tokens.ne[0],
               [&](size_t from, size_t to) { tokens.data[to] = latents.data[from]; });
    return tokens;
}

HostTensor from_tokens(const HostTensor& tokens, int64_t w, int64_t h) {
    check(tokens.ne[1] == w * h, ErrorKind::internal, tokens.ne[1],
          " tokens do not make a grid of ", w, "x", h);
    HostTensor latents({w, h, tokens.ne[0], 1});
    for_values(tokens.ne[1], tokens.ne[0],
               [&](size_t to, size_t from) { latents.data[to] = tokens.data[from]; });
    return latents;
}

std::vector<Position> text_positions(int64_t n) {
    std::vector<Position> positions;
    for (int64_t i = 0; i < n; ++i) {
        positions.push_back({0, 0, 0, static_cast<int32_t>(i)});
    }
    return positions;
}

std::vector<Position> image_positions(int64_t w, int64_t h, int32_t time) {
    std::vector<Position> positions;
    for (int64_t y = 0; y < h; ++y) {
        for (int64_t x = 0; x < w; ++x) {
            positions.push_back({time, static_cast<int32_t>(y), static_cast<int32_t>(x), 0});
        }
    }
    return positions;
}

int32_t reference_time(size_t index) {
    return 10 + 10 * static_cast<int32_t>(index);
}

}  // namespace flux2
