// Base64 as RFC 4648 has it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace flux2::server {

std::string to_base64(std::string_view bytes);

// Nothing for a text with other characters than those of base64 and line ends, or of a wrong
// length. Padding may be missing.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace flux2::server
