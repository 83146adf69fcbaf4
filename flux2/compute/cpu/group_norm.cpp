#include "compute/cpu/group_norm.hpp"

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/shared_work.hpp"

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

// ---- First node: x -> moments of each channel [channels, 2, chunks] ----

// Adds distances of n channels from `pivot`, and their squares.
FLUX2_INLINE void add_distances(const float* pixels, int64_t n_pixels, const float* pivot, size_t n,
                                float* sums, float* squares) {
    for (int64_t pixel = 0; pixel < n_pixels; ++pixel, pixels += n) {
        for (size_t i = 0; i < n; ++i) {
            const float distance = pixels[i] - pivot[i];
            sums[i] += distance;
            squares[i] += distance * distance;
        }
    }
}

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
        call_best<add_distances>(pixels, n_pixels, pivot_, n_, few_.data(), few_squares_.data());
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

void take_moments(ggml_tensor* dst, int, int nth, void* work) {
    constexpr int64_t kPixelsAtOnce = 64;
    const ggml_tensor* x = dst->src[0];
    const int64_t n_channels = x->ne[0];
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const int64_t chunk = chunk_of(n_pixels);
    share_items(work, dst->ne[2], nth, [&](int64_t i) {
        const int64_t end = std::min(n_pixels, (i + 1) * chunk);
        Moments moments(values(x) + i * chunk * n_channels, n_channels);
        for (int64_t pixel = i * chunk; pixel < end; pixel += kPixelsAtOnce) {
            moments.add(values(x) + pixel * n_channels, std::min(kPixelsAtOnce, end - pixel));
        }
        moments.write(static_cast<double>(end - i * chunk), values(dst) + i * 2 * n_channels);
    });
}

// ---- Second node: moments of each channel -> of each group [kNormGroups, 2] ----

int64_t channels_in_group(int64_t n_channels) {
    return (n_channels + own::kNormGroups - 1) / own::kNormGroups;
}

struct JoinParams {
    int64_t n_pixels = 0;
};

// Joins the moments of channels [first, end) over all pixels and writes those of their group.
void join_channels(const ggml_tensor* moments, int64_t n_pixels, int64_t first, int64_t end,
                   double* group) {
    const int64_t chunk = chunk_of(n_pixels);
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
    const auto n = static_cast<double>(n_pixels * (end - first));
    double mean = 0;
    each([&](double pixels, double part, double) { mean += pixels * part / n; });
    double all_squares = 0;
    each([&](double pixels, double part, double squares) {
        all_squares += squares + pixels * (part - mean) * (part - mean);
    });
    group[0] = mean;
    group[own::kNormGroups] = all_squares;
}

void join_moments(ggml_tensor* dst, int ith, int nth, void*) {
    const ggml_tensor* moments = dst->src[0];
    const int64_t n_channels = moments->ne[0];
    const int64_t size = channels_in_group(n_channels);
    const int64_t n_pixels = params_of<JoinParams>(dst).n_pixels;
    for (int64_t group = ith; group * size < n_channels; group += nth) {
        join_channels(moments, n_pixels, group * size, std::min(n_channels, (group + 1) * size),
                      static_cast<double*>(dst->data) + group);
    }
}

// ---- Third node: x, weight, bias, moments of each band -> result ----

struct MeanAndScale {
    float mean, scale;
};

// Joins the moments of a group of n channels over all bands.
MeanAndScale join_bands(const ggml_tensor* moments, const own::GroupNormParams& params,
                        int64_t group, int64_t n) {
    const auto n_values = static_cast<double>(params.n_pixels * n);
    const auto each = [&](auto&& f) {
        for (int64_t band = 0; band < moments->ne[2]; ++band) {
            const int64_t pixels =
                std::min(params.band_pixels, params.n_pixels - band * params.band_pixels);
            const double* of_band =
                static_cast<const double*>(moments->data) + band * 2 * own::kNormGroups + group;
            f(static_cast<double>(pixels * n), of_band[0], of_band[own::kNormGroups]);
        }
    };
    double mean = 0;
    each([&](double count, double part, double) { mean += count * part / n_values; });
    double variance = 0;
    each([&](double count, double part, double squares) {
        variance += (squares + count * (part - mean) * (part - mean)) / n_values;
    });
    return {static_cast<float>(mean),
            static_cast<float>(1 / std::sqrt(variance + static_cast<double>(own::kNormEps)))};
}

constexpr size_t kChannelsAtOnce = 128;

// Two loops: in one, GCC divides every value by the largest exponential as well, which gives
// denormal numbers, at 150 cycles for each vector of them.
FLUX2_INLINE void silu_of(float* y, size_t n) {
    std::array<float, kChannelsAtOnce> divisors;
    for (size_t i = 0; i < n; ++i) {
        divisors[i] = 1 + exp_of(-y[i]);
    }
    for (size_t i = 0; i < n; ++i) {
        y[i] /= divisors[i];
    }
}

// Results go through a variable of their own: so compilers see that nothing overlaps, and use
// vectors.
template <bool silu>
FLUX2_INLINE void apply_to_pixels(const float* from, int64_t n_pixels, const ChannelNorm* norm,
                                  float* to) {
    std::array<float, kChannelsAtOnce> y;
    const size_t n = norm->mean.size();
    for (int64_t pixel = 0; pixel < n_pixels; ++pixel, from += n, to += n) {
        for (size_t first = 0; first < n; first += kChannelsAtOnce) {
            const size_t some = std::min(kChannelsAtOnce, n - first);
            const float* mean = norm->mean.data() + first;
            const float* scale = norm->scale.data() + first;
            const float* bias = norm->bias.data() + first;
            for (size_t i = 0; i < some; ++i) {
                y[i] = (from[first + i] - mean[i]) * scale[i] + bias[i];
            }
            if constexpr (silu) {
                silu_of(y.data(), some);
            }
            std::copy_n(y.data(), some, to + first);
        }
    }
}

void normalise(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const int64_t n = x->ne[0];
    const ChannelNorm norm({dst->src[0], dst->src[1], dst->src[2], dst->src[3]},
                           params_of<own::GroupNormParams>(dst));
    share_pieces(work, x->ne[1] * x->ne[2], nth, {.least = kLeastPixels},
                 [&](int64_t begin, int64_t end) {
                     norm.apply(values(x) + begin * n, end - begin, values(dst) + begin * n);
                 });
}

const OwnOperation kChannelMoments = {"cpu norm moments", take_moments};

}  // namespace

ChannelNorm::ChannelNorm(const own::GroupNormInput& in, const own::GroupNormParams& params)
    : mean(static_cast<size_t>(in.x->ne[0])), scale(mean), bias(mean), silu(params.silu) {
    const int64_t n_channels = in.x->ne[0];
    const int64_t size = channels_in_group(n_channels);
    for (int64_t first = 0; first < n_channels; first += size) {
        const int64_t end = std::min(n_channels, first + size);
        const MeanAndScale group = join_bands(in.moments, params, first / size, end - first);
        for (int64_t i = first; i < end; ++i) {
            const auto channel = static_cast<size_t>(i);
            mean[channel] = group.mean;
            scale[channel] = group.scale * values(in.weight)[i];
            bias[channel] = values(in.bias)[i];
        }
    }
}

void ChannelNorm::apply(const float* from, int64_t n_pixels, float* to) const {
    if (silu) {
        call_best<apply_to_pixels<true>>(from, n_pixels, this, to);
    } else {
        call_best<apply_to_pixels<false>>(from, n_pixels, this, to);
    }
}

ggml_tensor* moments(Graph& g, ggml_tensor* x) {
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const int64_t chunk = chunk_of(n_pixels);
    ggml_tensor* of_channels =
        own_node(g, {kChannelMoments, {}, {x->ne[0], 2, (n_pixels + chunk - 1) / chunk, 1}}, {x});
    const NodeForm form = {.type = GGML_TYPE_F64, .function = join_moments};
    return own_node(g, {own::kMoments, form, {own::kNormGroups, 2, 1, 1}}, {of_channels},
                    JoinParams{n_pixels});
}

ggml_tensor* group_norm(Graph& g, const own::GroupNormInput& in, const own::GroupNormParams& params,
                        bool in_place) {
    return own::group_norm(g, in, params, {.function = normalise, .in_place = in_place});
}

ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        const GroupNormOptions& options) {
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    return group_norm(g, {.x = x, .weight = weight, .bias = bias, .moments = moments(g, x)},
                      {.silu = options.silu, .n_pixels = n_pixels, .band_pixels = n_pixels},
                      options.in_place);
}

}  // namespace flux2::cpu
