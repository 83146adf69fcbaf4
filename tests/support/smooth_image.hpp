// A picture for tests of image files.
#pragma once

#include <flux2/image.hpp>

#include <cstdint>

namespace flux2::test {

// Colours that change slowly, as in photographs.
inline Image smooth_image(int width, int height) {
    Image image{width, height, {}};
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (const int value : {255 * x / width, 255 * y / height, 128 + (x + y) % 64}) {
                image.rgb.push_back(static_cast<uint8_t>(value));
            }
        }
    }
    return image;
}

}  // namespace flux2::test
