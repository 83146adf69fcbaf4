// Reading picture files from memory; flux2/image.hpp has the functions for paths.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace flux2 {

// load_image for bytes already in memory; `file` names them in errors.
Image decode_image(std::span<const std::byte> bytes, const std::string& file);

}  // namespace flux2
