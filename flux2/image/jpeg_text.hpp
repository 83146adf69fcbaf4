// Texts inside a JPEG: `parameters` as the user comment of EXIF data, where other programs keep it;
// any other text in comment segments of our own form (docs/formats.md).
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace flux2 {

// The user comment, then the texts in comment segments, in the order of the file, which must have
// passed check_jpeg. What is broken or past kMaxTextBytes is left out.
std::vector<ImageText> read_jpeg_texts(std::span<const std::byte> bytes);

// Inserts the texts after the JPEG's header. `parameters` goes into comment segments instead when
// EXIF data cannot hold it. Throws bad_argument for a text with a problem, and past kMaxTextBytes.
void insert_jpeg_texts(std::vector<std::byte>& jpeg, const std::vector<ImageText>& texts);

}  // namespace flux2
