// Unicode as the tokenizer needs it: UTF-8, normalisation form C, and the character classes of its
// split pattern. The tables are utf8proc's.
#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// The code points of a text. Bytes that are not UTF-8 become U+FFFD, one for each longest prefix of
// a valid sequence or, if there is none, each byte, as with Python's errors="replace".
std::u32string from_utf8(std::string_view text);

// The inverse; the code points must be valid, as from_utf8 and nfc return them.
std::string to_utf8(std::u32string_view text);

// Normalisation form C. Takes O(n log n) time for any number of combining marks.
std::u32string nfc(std::u32string_view text);

bool is_letter(char32_t c);  // \p{L}
bool is_number(char32_t c);  // \p{N}
// Character classes of Tekken's pattern; letters without case and marks belong to both.
bool is_upper_or_caseless(char32_t c);  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
bool is_lower_or_caseless(char32_t c);  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
bool is_space(char32_t c);  // White_Space: U+0085, U+00A0 and U+3000, not U+200B or U+FEFF

}  // namespace flux2
