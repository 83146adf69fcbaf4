// JPEGs of four planes: CMYK, or YCCK as Adobe calls its form. They hold how much light each ink
// leaves, 0 for full ink, as Adobe's programs write them whether or not they say so.
#pragma once

#include "image/codec.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace flux2 {

// Of a file that has passed check_jpeg.
bool has_four_planes(std::span<const std::byte> jpeg);

// The inks of such a file: four channels, 0 is full ink. Throws bad_file when it is broken; `file`
// names it.
Pixels decode_cmyk(std::span<const std::byte> jpeg, const std::string& file);

// Inks to RGB without a profile, as Pillow converts them: each leaves a share of the light.
Pixels rgb_of_inks(Pixels inks);

}  // namespace flux2
