// Sizes that pictures of a dataset are trained at. Pictures of one size form batches, so each
// picture takes one of a few sizes of about the same area: those of kohya-ss/musubi-tuner.
#pragma once

#include <flux2/image.hpp>
#include "image/region.hpp"

#include <vector>

namespace flux2 {

struct BucketRule {
    int width = 512, height = 512;  // the size without buckets; with them only its area counts
    bool enabled = true;
    bool no_upscale = false;  // smaller pictures keep their size, cut to multiples of 16
};

// Sides are multiples of 16: widths from half the root of the area up to the root, each with the
// height that fits the area, and the same turned. Sorted by width.
std::vector<ImageSize> bucket_sizes(int width, int height);

// The size at which a picture of this size is trained: the bucket with the nearest ratio of width
// to height; of two, the narrower one.
ImageSize bucket_of(const BucketRule& rule, int width, int height);

}  // namespace flux2
