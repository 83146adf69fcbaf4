#include "jobs/thumbnail.hpp"

#include <algorithm>
#include <cstdint>

namespace flux2::server {
namespace {

// The mean of a rectangle's pixels in one channel.
uint8_t mean(const Image& image, int x0, int x1, int y0, int y1, int channel) {
    int64_t sum = 0;
    for (int y = y0; y < y1; ++y) {
        for (int x = x0; x < x1; ++x) {
            sum += image.rgb[static_cast<size_t>((int64_t{y} * image.width + x) * 3 + channel)];
        }
    }
    const int64_t n = int64_t{x1 - x0} * (y1 - y0);
    return static_cast<uint8_t>((sum + n / 2) / n);
}

}  // namespace

Image shrink(const Image& image, int side) {
    const int longest = std::max(image.width, image.height);
    if (longest <= side) {
        return image;
    }
    const auto scaled = [&](int length) {
        return std::max(1, static_cast<int>(int64_t{length} * side / longest));
    };
    Image small{scaled(image.width), scaled(image.height), {}};
    small.rgb.reserve(static_cast<size_t>(small.width) * static_cast<size_t>(small.height) * 3);
    const auto edge = [](int i, int n, int length) {
        return static_cast<int>(int64_t{i} * length / n);
    };
    for (int y = 0; y < small.height; ++y) {
        for (int x = 0; x < small.width; ++x) {
            for (int channel = 0; channel < 3; ++channel) {
                small.rgb.push_back(mean(image, edge(x, small.width, image.width),
                                         edge(x + 1, small.width, image.width),
                                         edge(y, small.height, image.height),
                                         edge(y + 1, small.height, image.height), channel));
            }
        }
    }
    return small;
}

}  // namespace flux2::server
