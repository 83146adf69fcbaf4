// Sizes that pictures are trained at, against a table made by hand.
#include "train/buckets.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace flux2 {
namespace {

using SizePairs = std::vector<std::pair<int, int>>;

SizePairs pairs_of(const std::vector<ImageSize>& sizes) {
    SizePairs pairs;
    for (const ImageSize& size : sizes) {
        pairs.push_back({size.width, size.height});
    }
    return pairs;
}

std::pair<int, int> bucket_pair(const BucketRule& rule, int width, int height) {
    const ImageSize size = bucket_of(rule, width, height);
    return {size.width, size.height};
}

// Widths from 64 to 128, heights 16384 / width cut to multiples of 16: 256, 204.8, 170.7, 146.3,
// 128; then the same turned.
TEST_CASE("buckets of 128x128 are those of the table") {
    const SizePairs expected = {{64, 256},  {80, 192}, {96, 160}, {112, 144}, {128, 128},
                                {144, 112}, {160, 96}, {192, 80}, {256, 64}};
    CHECK(pairs_of(bucket_sizes(128, 128)) == expected);
    CHECK(pairs_of(bucket_sizes(256, 64)) == expected);
}

TEST_CASE("a picture takes the bucket of the nearest ratio") {
    const BucketRule rule = {.width = 128, .height = 128};
    CHECK(bucket_pair(rule, 1000, 1000) == std::pair(128, 128));
    CHECK(bucket_pair(rule, 4000, 3000) == std::pair(144, 112));  // 1.333; 1.286 and 1.667
    CHECK(bucket_pair(rule, 3000, 4000) == std::pair(112, 144));  // 0.75; 0.778 and 0.6
    CHECK(bucket_pair(rule, 5000, 100) == std::pair(256, 64));
    CHECK(bucket_pair(rule, 100, 5000) == std::pair(64, 256));
}

TEST_CASE("without buckets all pictures have the resolution") {
    const BucketRule rule = {.width = 960, .height = 544, .enabled = false};
    CHECK(bucket_pair(rule, 300, 4000) == std::pair(960, 544));
}

TEST_CASE("without scaling up, smaller pictures keep their size on the grid") {
    const BucketRule rule = {.width = 512, .height = 512, .enabled = true, .no_upscale = true};
    CHECK(bucket_pair(rule, 300, 200) == std::pair(288, 192));
    CHECK(bucket_pair(rule, 1200, 1200) == std::pair(512, 512));
}

}  // namespace
}  // namespace flux2
