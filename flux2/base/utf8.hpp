// UTF-8 code point by code point, and the text of files that users wrote.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace flux2 {

// Returns the code point at `at` and advances `at`. Nothing for bytes that are not UTF-8; `at` then
// advances by the longest prefix of a valid sequence, or by one byte if there is none.
std::optional<char32_t> next_code_point(std::string_view text, size_t& at);

// The code point must be valid.
void append_utf8(std::string& text, char32_t c);

// Whether the byte belongs to a code point that began before it.
bool is_continuation(char byte);

bool is_utf8(std::string_view text);

// The text with U+FFFD in place of bytes that are not UTF-8.
std::string as_utf8(std::string_view text);

// The start of a text: as many whole code points as max_bytes hold.
std::string_view utf8_start(std::string_view text, size_t max_bytes);

// UTF-16 without a byte-order mark. Nothing for an odd number of bytes or half a pair.
std::optional<std::string> utf8_from_utf16(std::string_view bytes, bool big_endian);
// Big-endian, without a mark. The text must be UTF-8.
std::string utf16_from_utf8(std::string_view text);

// What a text file holds, as UTF-8 without a byte-order mark: UTF-8, or UTF-16 that begins with
// its mark. Throws bad_file, naming the file and the line, for anything else.
std::string decode_text_file(std::string_view bytes, const std::string& file);

}  // namespace flux2
