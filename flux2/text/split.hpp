// Cuts a text into the pieces that a tokenizer merges one by one.
#pragma once

#include <cstddef>
#include <string_view>

namespace flux2 {

// Whose pattern cuts (base/split_patterns). next_piece is each of them written out as code.
enum class Split { qwen, tekken };

// The piece that begins at `begin`, which must lie inside the text; it is never empty. Pieces that
// follow each other make up the whole text.
std::u32string_view next_piece(Split split, std::u32string_view text, size_t begin);

}  // namespace flux2
