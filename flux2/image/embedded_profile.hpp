// The ICC profile inside a PNG (iCCP), a JPEG (APP2 segments) or a WebP (ICCP).
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// The profile of a file that has passed its check in format_check.hpp; `file` names it. Empty when
// it has none; nothing when what holds it is broken, or it is larger than kMaxProfileBytes.
std::optional<std::vector<std::byte>> read_profile(ImageFormat format,
                                                   std::span<const std::byte> bytes,
                                                   const std::string& file);

// Inserts a profile of 1 to kMaxProfileBytes bytes into a file without one, which is no BMP.
void insert_profile(ImageFormat format, std::vector<std::byte>& file,
                    std::span<const std::byte> profile);

}  // namespace flux2
