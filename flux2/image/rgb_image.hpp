// The pixels of a picture's file, and the picture they are: transparency, and colours by the file's
// profile.
#pragma once

#include <flux2/image.hpp>
#include "image/codec.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace flux2 {

// The pixels of a file that has passed its check in format_check.hpp, CMYK as RGB without regard to
// profiles; `file` names it. Throws as the decoder of its format does.
Pixels file_pixels(ImageFormat format, std::span<const std::byte> bytes, const std::string& file);

enum class ProfileUse {
    convert,  // to sRGB
    keep,     // leave the bytes of RGB as they are, with the profile if it is not sRGB
};

// The picture of such a file, as it lies in it. Logs a warning for a profile that is not used, and
// for transparent pixels that Alpha::drop shows.
Image rgb_image(ImageFormat format, std::span<const std::byte> bytes, const std::string& file,
                Alpha alpha, ProfileUse use);

}  // namespace flux2
