// Texts inside a WebP: `parameters` as the user comment of EXIF data, where other programs keep it;
// any other text in a chunk of our own (docs/formats.md).
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// The user comment, then the texts in our chunks, in the order of the file, which must have passed
// check_webp; `file` names it. What is broken or past kMaxTextBytes is left out.
std::vector<ImageText> read_webp_texts(std::span<const std::byte> bytes, const std::string& file);

// Adds the texts to a WebP of one chunk, its picture. `parameters` goes into a chunk of our own
// when EXIF data cannot hold it. Throws bad_argument for a text with a problem, and past
// kMaxTextBytes.
void insert_webp_texts(std::vector<std::byte>& webp, const std::vector<ImageText>& texts);

}  // namespace flux2
