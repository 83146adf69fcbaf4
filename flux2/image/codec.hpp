// PNG, JPEG and BMP: compressed bytes to pixels and back; the only file that uses stb.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// The pixels of a file: grey, grey and alpha, RGB, or RGB and alpha. Palettes are resolved; a
// palette or a key colour with transparency gives alpha. Of 16-bit values the upper 8 bits are
// kept. Pillow's convert("RGB") clamps 16-bit grey at 255 instead, which makes most of a picture
// white; we differ from it on purpose.
struct Pixels {
    int width = 0;
    int height = 0;
    int n_channels = 0;  // 1 to 4
    std::unique_ptr<uint8_t, void (*)(void*)> values;
};

// Of a PNG or JPEG that has passed its check in format_check.hpp. Throws bad_file when it is
// broken; `file` names it.
Pixels decode_pixels(std::span<const std::byte> bytes, const std::string& file);

// The first plane of a JPEG that has passed its check: brightness, or the first ink of one with
// four planes and no segment of Adobe's. Throws bad_file as decode_pixels does.
Pixels decode_first_plane(std::span<const std::byte> bytes, const std::string& file);

// The same as Pixels, with all bits.
struct Pixels16 {
    int width = 0;
    int height = 0;
    int n_channels = 0;
    std::unique_ptr<uint16_t, void (*)(void*)> values;
};

// Of a PNG that has passed its check, of any depth. Throws bad_file when it is broken.
Pixels16 decode_pixels_16(std::span<const std::byte> bytes, const std::string& file);

// A whole PNG, JPEG or BMP. The quality of a JPEG is 0 to 100. Throws out_of_memory.
std::vector<std::byte> encode_pixels(ImageFormat format, const Image& image, int quality);

// Decompresses zlib data; nothing when they are broken or longer than max_size bytes. Both sizes
// are at most INT_MAX. The checksum at the end of the data is not compared.
std::optional<std::string> inflate(std::span<const std::byte> bytes, size_t max_size);

// The inverse, for at most INT_MAX bytes. Throws out_of_memory.
std::string deflate(std::span<const std::byte> bytes);

}  // namespace flux2
