#include "train/buckets.hpp"

#include "base/image_limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace flux2 {
namespace {

int64_t on_grid(int64_t side) {
    return side / kImageGrid * kImageGrid;
}

double ratio_of(int width, int height) {
    return static_cast<double>(width) / height;
}

}  // namespace

std::vector<ImageSize> bucket_sizes(int width, int height) {
    const int64_t area = int64_t{width} * height;
    const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(area)));
    std::vector<ImageSize> sizes;
    for (int64_t w = std::max<int64_t>(on_grid(root / 2), kImageGrid); w <= root; w += kImageGrid) {
        const int64_t h = on_grid(area / w);
        sizes.push_back({static_cast<int>(w), static_cast<int>(h)});
        sizes.push_back({static_cast<int>(h), static_cast<int>(w)});
    }
    const auto before = [](const ImageSize& a, const ImageSize& b) {
        return a.width != b.width ? a.width < b.width : a.height < b.height;
    };
    std::sort(sizes.begin(), sizes.end(), before);
    const auto equal = [](const ImageSize& a, const ImageSize& b) {
        return a.width == b.width && a.height == b.height;
    };
    sizes.erase(std::unique(sizes.begin(), sizes.end(), equal), sizes.end());
    return sizes;
}

ImageSize bucket_of(const BucketRule& rule, int width, int height) {
    if (!rule.enabled) {
        return {rule.width, rule.height};
    }
    if (rule.no_upscale && int64_t{width} * height <= int64_t{rule.width} * rule.height) {
        return {static_cast<int>(on_grid(width)), static_cast<int>(on_grid(height))};
    }
    const std::vector<ImageSize> sizes = bucket_sizes(rule.width, rule.height);
    const double ratio = ratio_of(width, height);
    return *std::min_element(sizes.begin(), sizes.end(),
                             [&](const ImageSize& a, const ImageSize& b) {
                                 return std::abs(ratio_of(a.width, a.height) - ratio) <
                                        std::abs(ratio_of(b.width, b.height) - ratio);
                             });
}

}  // namespace flux2
