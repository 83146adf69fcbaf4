// Small versions of pictures for lists.
#pragma once

#include <flux2/image.hpp>

namespace flux2::server {

// The picture with no side longer than `side` pixels, each pixel the mean of those it stands for;
// smaller pictures stay as they are.
Image shrink(const Image& image, int side);

}  // namespace flux2::server
