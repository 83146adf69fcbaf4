// Splits a text into the pieces within which a tokenizer merges.
#pragma once

#include <cstddef>
#include <string_view>

namespace flux2 {

// Whose pattern (base/split_patterns) is used. next_piece implements each pattern as code.
enum class Split { qwen, tekken };

// The piece that begins at `begin`, which must lie inside the text; it is never empty. Consecutive
// pieces make up the whole text.
std::u32string_view next_piece(Split split, std::u32string_view text, size_t begin);

}  // namespace flux2
