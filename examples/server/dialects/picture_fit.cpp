#include "dialects/picture_fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace flux2::server {
namespace {

// How positions of the result follow from those of the source along one side.
struct Axis {
    int from = 0, to = 0;  // lengths
    double scale = 1;      // pixels of the source for one of the result
};

std::pair<Axis, Axis> axes_of(int from_width, int from_height, int width, int height, Fit fit) {
    const double x = static_cast<double>(from_width) / width;
    const double y = static_cast<double>(from_height) / height;
    const double both = fit == Fit::crop ? std::min(x, y) : std::max(x, y);
    const bool stretch = fit == Fit::stretch;
    return {{from_width, width, stretch ? x : both}, {from_height, height, stretch ? y : both}};
}

struct Share {
    size_t index = 0;  // in the source
    float weight = 0;
};

// The pixels of the source that make pixel `i` of the result. The middles of both lie on each
// other; beyond the border the last pixel is repeated.
std::vector<Share> shares_of(const Axis& axis, int i) {
    const double centre = (i + 0.5 - axis.to / 2.0) * axis.scale + axis.from / 2.0;
    const double reach = std::max(1.0, axis.scale);
    std::vector<Share> shares;
    float sum = 0;
    for (int k = static_cast<int>(std::floor(centre - reach)); k < centre + reach; ++k) {
        const auto weight = static_cast<float>(1 - std::abs(k + 0.5 - centre) / reach);
        if (weight > 0) {
            shares.push_back({static_cast<size_t>(std::clamp(k, 0, axis.from - 1)), weight});
            sum += weight;
        }
    }
    for (Share& share : shares) {
        share.weight /= sum;
    }
    return shares;
}

// First along rows, then along columns.
std::vector<uint8_t> resampled(const std::vector<uint8_t>& in, size_t n_channels, const Axis& x,
                               const Axis& y) {
    const auto from_width = static_cast<size_t>(x.from);
    const auto width = static_cast<size_t>(x.to);
    std::vector<float> rows(static_cast<size_t>(y.from) * width * n_channels);
    for (size_t column = 0; column < width; ++column) {
        const std::vector<Share> shares = shares_of(x, static_cast<int>(column));
        for (size_t row = 0; row < static_cast<size_t>(y.from); ++row) {
            float* out = &rows[(row * width + column) * n_channels];
            for (const Share& share : shares) {
                const uint8_t* pixel = &in[(row * from_width + share.index) * n_channels];
                for (size_t c = 0; c < n_channels; ++c) {
                    out[c] += share.weight * static_cast<float>(pixel[c]);
                }
            }
        }
    }
    std::vector<uint8_t> result;
    result.reserve(static_cast<size_t>(y.to) * width * n_channels);
    std::vector<float> sums(width * n_channels);
    for (int row = 0; row < y.to; ++row) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (const Share& share : shares_of(y, row)) {
            const float* from = &rows[share.index * sums.size()];
            for (size_t i = 0; i < sums.size(); ++i) {
                sums[i] += share.weight * from[i];
            }
        }
        for (const float sum : sums) {
            result.push_back(static_cast<uint8_t>(std::lround(std::clamp(sum, 0.0f, 255.0f))));
        }
    }
    return result;
}

}  // namespace

Image fitted(const Image& image, int width, int height, Fit fit) {
    const auto [x, y] = axes_of(image.width, image.height, width, height, fit);
    return {width, height, resampled(image.rgb, 3, x, y), image.profile};
}

Mask fitted(const Mask& mask, int width, int height, Fit fit) {
    const auto [x, y] = axes_of(mask.width, mask.height, width, height, fit);
    return {width, height, resampled(mask.values, 1, x, y)};
}

}  // namespace flux2::server
