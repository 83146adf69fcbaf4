// Cuts a text into the pieces that a tokenizer merges one by one.
#pragma once

#include <cstddef>
#include <string_view>

namespace flux2 {

// Whose pattern cuts: that of Qwen2 and Qwen3, or Tekken, Mistral's.
enum class Split { qwen, tekken };

// The patterns as tokenizer.json holds them. next_piece is each of them written out as code.
inline constexpr std::string_view kQwenSplit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekkenSplit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The piece that begins at `begin`, which must lie inside the text; it is never empty. Pieces that
// follow each other make up the whole text.
std::u32string_view next_piece(Split split, std::u32string_view text, size_t begin);

}  // namespace flux2
