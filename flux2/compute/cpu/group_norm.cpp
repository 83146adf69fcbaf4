#include "compute/cpu/group_norm.hpp"

#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/feature_map_nodes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace flux2::cpu {
namespace {

// Neighbouring pixels, whose moments one thread takes: mean and sum of squared distances from it,
// for each channel. Joining them gives the same numbers however many threads there are.
constexpr int64_t kMostChunks = 64;
constexpr int64_t kLeastPixels = 64;

int64_t chunk_of(int64_t n_pixels) {
    return std::max(kLeastPixels, (n_pixels + kMostChunks - 1) / kMostChunks);
}

// ---- First node: x -> moments [channels, 2, chunks] ----

// Adds up distances from `pivot` and their squares: in F32 over a few pixels, then in double.
class Moments {
  public:
    Moments(const float* pivot, int64_t n_channels)
        : pivot_(pivot),
          n_(static_cast<size_t>(n_channels)),
          few_(n_),
          few_squares_(n_),
          sum_(n_),
          squares_(n_) {}

    void add(const float* pixels, int64_t n_pixels) {
        std::fill(few_.begin(), few_.end(), 0.0f);
        std::fill(few_squares_.begin(), few_squares_.end(), 0.0f);
        for (int64_t pixel = 0; pixel < n_pixels; ++pixel, pixels += n_) {
            for (size_t i = 0; i < n_; ++i) {
                const float distance = pixels[i] - pivot_[i];
                few_[i] += distance;
                few_squares_[i] += distance * distance;
            }
        }
        for (size_t i = 0; i < n_; ++i) {
            sum_[i] += static_cast<double>(few_[i]);
            squares_[i] += static_cast<double>(few_squares_[i]);
        }
    }

    void write(double n_pixels, float* to) const {
        for (size_t i = 0; i < n_; ++i) {
            to[i] = static_cast<float>(static_cast<double>(pivot_[i]) + sum_[i] / n_pixels);
            to[n_ + i] = static_cast<float>(squares_[i] - sum_[i] * sum_[i] / n_pixels);
        }
    }

  private:
    const float* pivot_;  // some pixel: close enough that squares lose no precision
    size_t n_;
    std::vector<float> few_, few_squares_;
    std::vector<double> sum_, squares_;
};

void take_moments(ggml_tensor* dst, int ith, int nth, void*) {
    constexpr int64_t kPixelsAtOnce = 64;
    const ggml_tensor* x = dst->src[0];
    const int64_t n_channels = x->ne[0];
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const int64_t chunk = chunk_of(n_pixels);
    for (int64_t i = ith; i < dst->ne[2]; i += nth) {
        const int64_t end = std::min(n_pixels, (i + 1) * chunk);
        Moments moments(values(x) + i * chunk * n_channels, n_channels);
        for (int64_t pixel = i * chunk; pixel < end; pixel += kPixelsAtOnce) {
            moments.add(values(x) + pixel * n_channels, std::min(kPixelsAtOnce, end - pixel));
        }
        moments.write(static_cast<double>(end - i * chunk), values(dst) + i * 2 * n_channels);
    }
}

// ---- Second node: x, weight, bias, moments -> result ----

// Channels are taken in groups of a fixed size, in a variable of its own: so compilers see that
// nothing overlaps, and use vectors.
constexpr size_t kChannelsAtOnce = 16;

// What is done to each channel, (x - mean) * scale + bias; filled up to whole groups.
struct Affine {
    explicit Affine(int64_t n_channels)
        : mean(static_cast<size_t>(round_up(n_channels, kChannelsAtOnce))),
          scale(mean),
          bias(mean) {}

    std::vector<float> mean, scale, bias;
};

struct MeanAndScale {
    float mean, scale;
};

// Joins the moments of channels [first, end) over all pixels.
MeanAndScale join(const ggml_tensor* moments, int64_t n_pixels, int64_t first, int64_t end) {
    const int64_t chunk = chunk_of(n_pixels);
    const auto n = static_cast<double>(n_pixels * (end - first));
    const auto each = [&](auto&& f) {
        for (int64_t i = 0; i < moments->ne[2]; ++i) {
            const auto pixels = static_cast<double>(std::min(chunk, n_pixels - i * chunk));
            const float* means = values(moments) + i * 2 * moments->ne[0];
            for (int64_t c = first; c < end; ++c) {
                f(pixels, static_cast<double>(means[c]),
                  static_cast<double>(means[moments->ne[0] + c]));
            }
        }
    };
    double mean = 0;
    each([&](double pixels, double part, double) { mean += pixels * part / n; });
    double variance = 0;
    each([&](double pixels, double part, double squares) {
        variance += (squares + pixels * (part - mean) * (part - mean)) / n;
    });
    return {static_cast<float>(mean),
            static_cast<float>(1 / std::sqrt(variance + static_cast<double>(own::kNormEps)))};
}

Affine affine_of(const ggml_tensor* moments, int64_t n_pixels, const float* weight,
                 const float* bias) {
    const int64_t n_channels = moments->ne[0];
    const int64_t size = (n_channels + own::kNormGroups - 1) / own::kNormGroups;
    Affine affine(n_channels);
    for (int64_t first = 0; first < n_channels; first += size) {
        const int64_t end = std::min(n_channels, first + size);
        const MeanAndScale group = join(moments, n_pixels, first, end);
        for (int64_t i = first; i < end; ++i) {
            const auto channel = static_cast<size_t>(i);
            affine.mean[channel] = group.mean;
            affine.scale[channel] = group.scale * weight[i];
            affine.bias[channel] = bias[i];
        }
    }
    return affine;
}

// Copies n <= kChannelsAtOnce values; a whole group without a call.
void copy_channels(const float* from, size_t n, float* to) {
    if (n == kChannelsAtOnce) {
        std::copy_n(from, kChannelsAtOnce, to);
    } else {
        std::copy_n(from, n, to);
    }
}

template <bool silu>
void apply_to_pixel(const float* from, int64_t n_channels, const Affine& affine, float* to) {
    const auto n = static_cast<size_t>(n_channels);
    for (size_t first = 0; first < n; first += kChannelsAtOnce) {
        const size_t some = std::min(kChannelsAtOnce, n - first);
        std::array<float, kChannelsAtOnce> y = {};
        copy_channels(from + first, some, y.data());
        for (size_t i = 0; i < kChannelsAtOnce; ++i) {
            y[i] =
                (y[i] - affine.mean[first + i]) * affine.scale[first + i] + affine.bias[first + i];
            y[i] = silu ? y[i] / (1 + exp_of(-y[i])) : y[i];
        }
        copy_channels(y.data(), some, to + first);
    }
}

template <bool silu>
void apply(ggml_tensor* dst, int ith, int nth) {
    const ggml_tensor* x = dst->src[0];
    const int64_t n = x->ne[0];
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const Affine affine =
        affine_of(dst->src[3], n_pixels, values(dst->src[1]), values(dst->src[2]));
    for (int64_t pixel = n_pixels * ith / nth; pixel < n_pixels * (ith + 1) / nth; ++pixel) {
        apply_to_pixel<silu>(values(x) + pixel * n, n, affine, values(dst) + pixel * n);
    }
}

void normalise(ggml_tensor* dst, int ith, int nth, void*) {
    if (params_of<own::GroupNormParams>(dst).silu) {
        apply<true>(dst, ith, nth);
    } else {
        apply<false>(dst, ith, nth);
    }
}

const OwnOperation kMoments = {"cpu norm moments", take_moments};

}  // namespace

ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        const GroupNormOptions& options) {
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const int64_t chunk = chunk_of(n_pixels);
    ggml_tensor* moments =
        own_node(g, {kMoments, {}, {x->ne[0], 2, (n_pixels + chunk - 1) / chunk, 1}}, {x});
    return own::group_norm(g, {.x = x, .weight = weight, .bias = bias, .moments = moments},
                           {.silu = options.silu},
                           {.function = normalise, .in_place = options.in_place});
}

}  // namespace flux2::cpu
