// Texts inside a PNG: tEXt (Latin-1), zTXt (the same, compressed) and iTXt (UTF-8).
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// The texts in the order of the file, which must have passed check_png. Throws bad_file for a
// broken or wrongly checksummed text chunk, and for chunks of more than kMaxTextBytes together, as
// they are or decompressed; `file` names it.
std::vector<ImageText> read_png_texts(std::span<const std::byte> bytes, const std::string& file);

// Inserts the texts after the PNG's header: ASCII as tEXt, else iTXt. Throws bad_argument for a
// text with a problem, and past kMaxTextBytes.
void insert_png_texts(std::vector<std::byte>& png, const std::vector<ImageText>& texts);

}  // namespace flux2
