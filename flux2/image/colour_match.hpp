// Colours of a picture matched to those of the picture it was made from: autoencoders and models
// shift them a little everywhere.
#pragma once

#include <flux2/image.hpp>

namespace flux2 {

// Scales and shifts each channel of the picture such that what did not change has the colours of
// the source; which pixels these are is found out. Both have the same size. Returns false, and
// leaves the picture as it is, when hardly any pixel is alike.
bool match_colours(Image& picture, const Image& source);

// Adds to the masked pixels what the kept ones around them lack of the source, interpolated
// smoothly, so that no edge is seen where the mask ends. All three have the same size; pixels with
// the value 0 are the kept ones. Those that differ much have changed and count little.
void match_seam(Image& picture, const Image& source, const Mask& mask);

}  // namespace flux2
