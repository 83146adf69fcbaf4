// Cameras save pictures as the sensor was held; EXIF data say how to rotate them. They may also
// hold a comment, where programs that make pictures keep their settings.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

// EXIF's numbers: 1 is upright, 2 to 4 are mirrored or upside down, 5 to 8 lie on a side.
constexpr int kUpright = 1;

// The orientation in EXIF data, which begin with their byte order. kUpright when there is none or
// the data are broken: that is no reason to refuse a picture.
int exif_orientation(std::span<const std::byte> exif);

// The user comment of EXIF data as UTF-8. Nothing when there is none or an empty one, the data are
// broken, or its encoding is not known.
std::optional<std::string> exif_user_comment(std::span<const std::byte> exif);

// The key of the text that is kept as a user comment.
constexpr std::string_view kCommentKey = "parameters";

// EXIF data with nothing but a user comment. Byte order and encoding are those of AUTOMATIC1111's
// web interface. Nothing when exif_user_comment would not return exactly this text, which must be
// UTF-8.
std::optional<std::string> exif_with_comment(const std::string& text);

// What stands before EXIF data in their segment of a JPEG.
constexpr std::string_view kJpegExifName("Exif\0\0", 6);

// The EXIF data of a JPEG (the first such APP1 segment before the pixels), a PNG (an intact eXIf
// chunk) and a WebP (the first EXIF chunk); empty when there are none. They return views of
// `bytes`.
std::span<const std::byte> jpeg_exif(std::span<const std::byte> bytes);
// The file must have passed check_png or check_webp.
std::span<const std::byte> png_exif(std::span<const std::byte> bytes, const std::string& file);
std::span<const std::byte> webp_exif(std::span<const std::byte> bytes, const std::string& file);

// Rotates or mirrors the picture upright, given its orientation from 1 to 8.
Image turn_upright(Image image, int orientation);

}  // namespace flux2
