// Cameras save pictures as the sensor was held; EXIF data say how to rotate them.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace flux2 {

// EXIF's numbers: 1 is upright, 2 to 4 are mirrored or upside down, 5 to 8 lie on a side.
constexpr int kUpright = 1;

// The orientation in EXIF data, which begin with their byte order. kUpright when there is none or
// the data are broken: that is no reason to refuse a picture.
int exif_orientation(std::span<const std::byte> exif);

// The EXIF data of a JPEG (the first such APP1 segment before the pixels) and of a PNG (an intact
// eXIf chunk); empty when there are none. Both return views of `bytes`.
std::span<const std::byte> jpeg_exif(std::span<const std::byte> bytes);
// The file must have passed check_png.
std::span<const std::byte> png_exif(std::span<const std::byte> bytes, const std::string& file);

// Rotates or mirrors the picture upright, given its orientation from 1 to 8.
Image turn_upright(Image image, int orientation);

}  // namespace flux2
