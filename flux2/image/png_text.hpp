// Texts inside a PNG: tEXt (Latin-1), zTXt (the same, compressed) and iTXt (UTF-8).
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// Limit for all text chunks of a file, and for the compressed ones after decompression.
constexpr size_t kMaxPngTextBytes = size_t{8} << 20;

// The texts in the order of the file, which must have passed check_png. Throws bad_file for a
// broken or wrongly checksummed text chunk, and past kMaxPngTextBytes; `file` names it.
std::vector<ImageText> read_png_texts(std::span<const std::byte> bytes, const std::string& file);

// Inserts the texts after the PNG's header: ASCII as tEXt, else iTXt. Throws bad_argument for a key
// that is not 1 to 79 printable ASCII characters, a text that is not UTF-8 or has zero bytes, and
// past kMaxPngTextBytes.
void insert_png_texts(std::vector<std::byte>& png, const std::vector<ImageText>& texts);

}  // namespace flux2
