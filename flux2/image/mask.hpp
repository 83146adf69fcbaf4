// Masks: which pixels of a picture are repainted, and how their edges are moved and softened.
#pragma once

#include <flux2/image.hpp>
#include "image/region.hpp"

#include <vector>

namespace flux2 {

// Throws bad_argument unless the sides are in 1..kMaxImageSide and there is a value for each pixel.
void check_mask(const Mask& mask);

Mask inverted(Mask mask);

// Widens what is repainted by a disk of this radius in pixels; a radius below 0 narrows it. Beyond
// the picture's border everything is as at the border.
Mask grown(const Mask& mask, int radius);

// Softens edges over `pixels` on both sides; farther away values stay as they are.
Mask blurred(const Mask& mask, int pixels);

// How much of a pixel comes from the repainted picture: 0 where the mask is 0, rising to the mask's
// value over `pixels` inside its edge. Parts of the mask that are too narrow for that keep their
// values.
Mask softened_inside(const Mask& mask, int pixels);

// The smallest region with all values above 0; empty when there are none.
Region covered_region(const Mask& mask);

// Reduces the mask to one value per latent token (w x h of them), 0..1: the largest value of the
// mask under the token. `region` of the mask is scaled to `inner` pixels; tokens outside `inner`
// repeat the border.
std::vector<float> mask_cells(const Mask& mask, const Region& region, ImageSize inner, int w,
                              int h);

// Values of this region.
Mask crop(const Mask& mask, const Region& region);

}  // namespace flux2
