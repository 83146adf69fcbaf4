#include "pipeline/preview.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "image/image.hpp"
#include "pipeline/latents.hpp"

#include <cmath>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

constexpr int64_t kTokens = 20;  // a side of the random picture: 400 samples for 129 unknowns
constexpr int64_t kPixels = 2;   // a side of what a token becomes
constexpr double kRidge = 1e-3;  // regularises channels with little influence

// The mean colour of the 8 x 8 pixels that pixel (px, py) of token (x, y) stands for.
double mean_colour(const HostTensor& decoded, int64_t colour, int64_t x, int64_t y) {
    constexpr int64_t kSide = kImageGrid / kPixels;
    double sum = 0;
    for (int64_t dy = 0; dy < kSide; ++dy) {
        const int64_t row = (colour * decoded.ne[1] + y * kSide + dy) * decoded.ne[0] + x * kSide;
        for (int64_t dx = 0; dx < kSide; ++dx) {
            sum += static_cast<double>(decoded.data[static_cast<size_t>(row + dx)]);
        }
    }
    return sum / static_cast<double>(kSide * kSide);
}

// Solves a x = b for a symmetric positive a [n, n] and several columns b, in place (Cholesky).
void solve(std::vector<double>& a, std::vector<std::vector<double>>& columns, size_t n) {
    for (size_t j = 0; j < n; ++j) {
        for (size_t i = j; i < n; ++i) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; ++k) {
                sum -= a[i * n + k] * a[j * n + k];
            }
            a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
        }
    }
    for (std::vector<double>& b : columns) {
        for (size_t i = 0; i < n; ++i) {
            for (size_t k = 0; k < i; ++k) {
                b[i] -= a[i * n + k] * b[k];
            }
            b[i] /= a[i * n + i];
        }
        for (size_t i = n; i-- > 0;) {
            for (size_t k = i + 1; k < n; ++k) {
                b[i] -= a[k * n + i] * b[k];
            }
            b[i] /= a[i * n + i];
        }
    }
}

}  // namespace

HostTensor fit_preview(Autoencoder& autoencoder) {
    const int64_t channels = 4 * autoencoder.latent_channels();
    const HostTensor latents = draw_noise(Generator::cpu_f32, 1, kTokens, kTokens, channels);
    const HostTensor decoded = autoencoder.decode(latents);
    const HostTensor tokens = to_tokens(latents);
    const auto n = static_cast<size_t>(channels + 1);
    constexpr size_t kOutputs = 3 * kPixels * kPixels;
    static_assert(kOutputs == kPreviewOutputs);
    std::vector<double> a(n * n, 0.0);
    std::vector<std::vector<double>> b(kOutputs, std::vector<double>(n, 0.0));
    std::vector<double> sample(n, 1.0);
    for (int64_t token = 0; token < kTokens * kTokens; ++token) {
        for (int64_t c = 0; c < channels; ++c) {
            sample[static_cast<size_t>(c)] =
                static_cast<double>(tokens.data[static_cast<size_t>(token * channels + c)]);
        }
        for (size_t i = 0; i < n; ++i) {
            for (size_t j = 0; j < n; ++j) {
                a[i * n + j] += sample[i] * sample[j];
            }
        }
        for (size_t o = 0; o < kOutputs; ++o) {
            const auto pixel = static_cast<int64_t>(o % (kPixels * kPixels));
            const double target =
                mean_colour(decoded, static_cast<int64_t>(o / (kPixels * kPixels)),
                            token % kTokens * kPixels + pixel % kPixels,
                            token / kTokens * kPixels + pixel / kPixels);
            for (size_t i = 0; i < n; ++i) {
                b[o][i] += sample[i] * target;
            }
        }
    }
    for (size_t i = 0; i < n; ++i) {
        a[i * n + i] += kRidge * static_cast<double>(kTokens * kTokens);
    }
    solve(a, b, n);
    HostTensor map({channels + 1, kOutputs, 1, 1});
    for (size_t o = 0; o < kOutputs; ++o) {
        for (size_t i = 0; i < n; ++i) {
            map.data[o * n + i] = static_cast<float>(b[o][i]);
        }
    }
    return map;
}

Image draw_preview(const HostTensor& map, const HostTensor& tokens, int64_t w, int64_t h) {
    const int64_t channels = tokens.ne[0];
    check(map.ne[0] == channels + 1 && tokens.ne[1] == w * h, ErrorKind::internal, "a preview of ",
          channels, " channels does not fit its map of ", map.ne[0]);
    HostTensor planes({kPixels * w, kPixels * h, 3, 1});
    for (int64_t token = 0; token < w * h; ++token) {
        const float* from = tokens.data.data() + token * channels;
        for (int64_t o = 0; o < map.ne[1]; ++o) {
            const float* weights = map.data.data() + o * map.ne[0];
            float value = weights[channels];
            for (int64_t c = 0; c < channels; ++c) {
                value += weights[c] * from[c];
            }
            const int64_t pixel = o % (kPixels * kPixels);
            const int64_t x = token % w * kPixels + pixel % kPixels;
            const int64_t y = token / w * kPixels + pixel / kPixels;
            const int64_t colour = o / (kPixels * kPixels);
            planes.data[static_cast<size_t>((colour * planes.ne[1] + y) * planes.ne[0] + x)] =
                value;
        }
    }
    return from_planes(planes);
}

}  // namespace flux2
