// Reading picture files from memory; flux2/image.hpp has the functions for paths.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// load_image and read_image_texts for bytes already in memory; `file` names them in errors.
Image decode_image(std::span<const std::byte> bytes, const std::string& file,
                   Alpha alpha = Alpha::drop);
std::vector<ImageText> decode_texts(std::span<const std::byte> bytes, const std::string& file);

}  // namespace flux2
