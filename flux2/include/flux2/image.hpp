// Pictures as the library takes and gives them, and their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace flux2 {

// 8-bit RGB without padding: rows from top to bottom, three bytes a pixel.
struct Image {
    int width = 0;
    int height = 0;
    std::vector<uint8_t> rgb;
};

// Reads a PNG or a JPEG, whatever its name ends in. Grey and palette become RGB, alpha is dropped
// (not blended), of 16 bits the upper 8 are kept; colour profiles and EXIF rotation are not
// applied. Throws bad_file for a missing, broken or truncated file, one of another format, and a
// picture with a side over 16384 pixels; sizes are checked before anything is decoded.
Image load_image(const std::filesystem::path& path);

// Writes a PNG, a JPEG (quality 95, colour at full resolution) or a BMP, as the name ends in .png,
// .jpg, .jpeg or .bmp. The file appears whole or not at all. Throws bad_argument for another ending
// or an image whose sizes do not fit its bytes, bad_file or out_of_disk when it cannot be written.
void save_image(const std::filesystem::path& path, const Image& image);

}  // namespace flux2
