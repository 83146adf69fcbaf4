// Splits a text into the pieces within which a tokenizer merges: each pattern of
// base/split_patterns as code.
#pragma once

#include "base/split_patterns.hpp"

#include <cstddef>
#include <string_view>

namespace flux2 {

// The piece that begins at `begin`, which must lie inside the text; it is never empty. Consecutive
// pieces make up the whole text.
std::u32string_view next_piece(Split split, std::u32string_view text, size_t begin);

}  // namespace flux2
