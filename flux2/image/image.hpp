// Pixel operations: resizing and cropping as the reference does with Pillow, and conversion between
// bytes and the autoencoder's values. They are for pictures in sRGB: results have no profile.
#pragma once

#include <flux2/image.hpp>
#include "base/host_tensor.hpp"
#include "base/image_limits.hpp"
#include "image/region.hpp"

#include <cstdint>

namespace flux2 {

// Throws bad_argument unless the sides are in 1..kMaxImageSide and rgb has their bytes. Every
// function below that takes an image calls it first.
void check_image(const Image& image);

// Pillow's Lanczos filter, equal to the byte.
Image resize_lanczos(const Image& image, int width, int height);

// The middle of the picture; if the margin is odd, the smaller half is cut off left and at the top.
// Throws bad_argument when the picture is smaller.
Image center_crop(const Image& image, int width, int height);

// The pixels of a region, which must lie within the picture.
Image crop(const Image& image, const Region& region);

// Pictures of one size in a row; one is given back as it is.
Image side_by_side(const std::vector<Image>& images);

// Adds so many pixels at each side; they repeat those at the border.
struct Margins {
    int left = 0, top = 0, right = 0, bottom = 0;
};
Image extend_edges(const Image& image, const Margins& margins);
// The same, blurred along the border, the more the farther away.
Image extend_blurred(const Image& image, const Margins& margins);

// Scales the picture until it covers this size, then crops the middle.
Image cover(const Image& image, int width, int height);

// A reference picture as the model takes it: scaled down to at most max_pixels and to sides of at
// most max_side, then cropped to multiples of 16. Throws bad_argument for a side under 64 pixels,
// or one over 8 times the other.
Image fit_reference(const Image& image, int64_t max_pixels, int max_side = kMaxImageSide);
// The size of the result, computed without touching pixels. Throws as fit_reference does.
ImageSize fitted_size(const Image& image, int64_t max_pixels, int max_side = kMaxImageSide);

// 0..255 -> -1..1, planes of red, green and blue: [width, height, 3].
HostTensor to_planes(const Image& image);

// The inverse: values are clamped to -1..1 and rounded. Throws internal for another shape or a
// value that is not a number.
Image from_planes(const HostTensor& planes);

}  // namespace flux2
