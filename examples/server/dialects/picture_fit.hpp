// Pictures and masks brought to another size.
#pragma once

#include <flux2/image.hpp>

namespace flux2::server {

enum class Fit {
    stretch,  // both sides are scaled by their own factors
    crop,     // covers the new size; what is outside is cut off on both sides
    extend,   // fits into the new size; the pixels at the border are repeated
};

// Scaled by a triangle filter, so that every pixel of a larger picture counts. Sides are above 0.
Image fitted(const Image& image, int width, int height, Fit fit);
Mask fitted(const Mask& mask, int width, int height, Fit fit);

}  // namespace flux2::server
