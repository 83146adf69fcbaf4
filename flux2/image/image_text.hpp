// What holds for the texts in pictures of every format.
#pragma once

#include <flux2/image.hpp>

#include <cstddef>
#include <optional>
#include <string>

namespace flux2 {

// Limit for all texts of a file.
constexpr size_t kMaxTextBytes = size_t{8} << 20;

constexpr size_t kMaxTextKey = 79;

// Why a picture cannot hold it: its key is not 1 to 79 printable ASCII characters, or the text is
// not UTF-8 or has zero bytes. Nothing when it can.
std::optional<std::string> text_problem(const ImageText& text);

}  // namespace flux2
