// Cuts a text into the pieces that Qwen's tokenizer merges one by one.
#pragma once

#include <cstddef>
#include <string_view>

namespace flux2 {

// The pattern of Qwen2 and Qwen3 as tokenizer.json holds it. next_piece is this pattern written out
// as code.
inline constexpr std::string_view kQwenSplit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The piece that begins at `begin`, which must lie inside the text; it is never empty. Pieces that
// follow each other make up the whole text.
std::u32string_view next_piece(std::u32string_view text, size_t begin);

}  // namespace flux2
