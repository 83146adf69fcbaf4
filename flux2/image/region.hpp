// Sizes of pictures and rectangles in them.
#pragma once

namespace flux2 {

struct ImageSize {
    int width = 0, height = 0;
};

struct Region {
    int x = 0, y = 0;  // of its left upper corner
    int width = 0, height = 0;

    int right() const { return x + width; }
    int bottom() const { return y + height; }
    bool is_empty() const { return width == 0 || height == 0; }
};

}  // namespace flux2
