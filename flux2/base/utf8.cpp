#include "base/utf8.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cstdint>

namespace flux2 {
namespace {

// Which bytes may follow a first byte: the Unicode Standard's table 3-7.
struct Sequence {
    int n_more;             // continuation bytes; -1: not a first byte
    uint8_t second_lowest;  // of the second byte; later ones are 80..BF
    uint8_t second_highest;
    char32_t bits;  // contribution of the first byte
};

Sequence sequence_of(uint8_t first) {
    if (first < 0x80) {
        return {0, 0, 0, first};
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return {1, 0x80, 0xBF, first & 0x1Fu};
    }
    if (first >= 0xE0 && first <= 0xEF) {
        // No overlong forms, no surrogates.
        const uint8_t lowest = first == 0xE0 ? 0xA0 : 0x80;
        const uint8_t highest = first == 0xED ? 0x9F : 0xBF;
        return {2, lowest, highest, first & 0x0Fu};
    }
    if (first >= 0xF0 && first <= 0xF4) {
        // No overlong forms, nothing past U+10FFFF.
        const uint8_t lowest = first == 0xF0 ? 0x90 : 0x80;
        const uint8_t highest = first == 0xF4 ? 0x8F : 0xBF;
        return {3, lowest, highest, first & 0x07u};
    }
    return {-1, 0, 0, 0};
}

std::ptrdiff_t line_number(std::string_view text) {
    return 1 + std::count(text.begin(), text.end(), '\n');
}

// Appends UTF-16 up to its end or its first error. Returns whether there was none.
bool append_utf16(std::string_view bytes, bool big_endian, std::string& text) {
    const size_t high = big_endian ? 0 : 1;  // the index of the high byte in a pair
    const auto unit = [&](size_t i) {
        return static_cast<char32_t>(static_cast<uint8_t>(bytes[i + high]) << 8 |
                                     static_cast<uint8_t>(bytes[i + 1 - high]));
    };
    const auto is_high = [](char32_t c) { return c >= 0xD800 && c <= 0xDBFF; };
    const auto is_low = [](char32_t c) { return c >= 0xDC00 && c <= 0xDFFF; };
    for (size_t i = 0; i < bytes.size(); i += 2) {
        const bool whole = i + 1 < bytes.size();
        char32_t c = whole ? unit(i) : 0;
        const bool pair = is_high(c) && i + 3 < bytes.size() && is_low(unit(i + 2));
        if (!whole || is_low(c) || (is_high(c) && !pair)) {
            return false;
        }
        if (pair) {
            c = 0x10000 + ((c - 0xD800) << 10) + (unit(i + 2) - 0xDC00);
            i += 2;
        }
        append_utf8(text, c);
    }
    return true;
}

// Of the bytes after the byte-order mark.
std::string from_utf16(std::string_view bytes, bool big_endian, const std::string& file) {
    std::string text;
    const bool valid = append_utf16(bytes, big_endian, text);
    check(valid, ErrorKind::bad_file, file, ": line ", line_number(text),
          " is not UTF-16, which the file's byte-order mark promises; save it as UTF-8");
    return text;
}

void check_text(std::string_view text, const std::string& file) {
    for (size_t at = 0; at < text.size();) {
        const size_t start = at;
        const auto c = next_code_point(text, at);
        if (!c || *c == 0) {
            fail(ErrorKind::bad_file, file, ": line ", line_number(text.substr(0, start)),
                 c ? " holds a zero byte, so it is no text in UTF-8"
                   : " holds bytes that are not UTF-8",
                 "; save the file as UTF-8");
        }
    }
}

}  // namespace

std::optional<char32_t> next_code_point(std::string_view text, size_t& at) {
    const Sequence sequence = sequence_of(static_cast<uint8_t>(text[at++]));
    if (sequence.n_more < 0) {
        return std::nullopt;
    }
    char32_t c = sequence.bits;
    for (int i = 0; i < sequence.n_more; ++i) {
        const uint8_t lowest = i == 0 ? sequence.second_lowest : 0x80;
        const uint8_t highest = i == 0 ? sequence.second_highest : 0xBF;
        const uint8_t byte = at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
        if (byte < lowest || byte > highest) {
            return std::nullopt;  // the byte may begin the next sequence
        }
        c = c << 6 | (byte & 0x3Fu);
        ++at;
    }
    return c;
}

void append_utf8(std::string& text, char32_t c) {
    const auto continuation = [&](int shift) {
        text += static_cast<char>(0x80 | (c >> shift & 0x3F));
    };
    if (c < 0x80) {
        text += static_cast<char>(c);
    } else if (c < 0x800) {
        text += static_cast<char>(0xC0 | c >> 6);
        continuation(0);
    } else if (c < 0x10000) {
        text += static_cast<char>(0xE0 | c >> 12);
        continuation(6);
        continuation(0);
    } else {
        text += static_cast<char>(0xF0 | c >> 18);
        continuation(12);
        continuation(6);
        continuation(0);
    }
}

bool is_continuation(char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

bool is_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        if (!next_code_point(text, at)) {
            return false;
        }
    }
    return true;
}

std::string as_utf8(std::string_view text) {
    constexpr char32_t kReplacement = 0xFFFD;
    std::string valid;
    valid.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const size_t start = at;
        if (next_code_point(text, at)) {
            valid += text.substr(start, at - start);
        } else {
            append_utf8(valid, kReplacement);
        }
    }
    return valid;
}

std::string_view utf8_start(std::string_view text, size_t max_bytes) {
    if (text.size() <= max_bytes) {
        return text;
    }
    while (max_bytes > 0 && is_continuation(text[max_bytes])) {
        --max_bytes;
    }
    return text.substr(0, max_bytes);
}

std::optional<std::string> utf8_from_utf16(std::string_view bytes, bool big_endian) {
    std::string text;
    return append_utf16(bytes, big_endian, text) ? std::optional(text) : std::nullopt;
}

std::string utf16_from_utf8(std::string_view text) {
    std::string bytes;
    const auto append_unit = [&](char32_t unit) {
        bytes += static_cast<char>(unit >> 8);
        bytes += static_cast<char>(unit & 0xFF);
    };
    for (size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text, at).value();
        if (c < 0x10000) {
            append_unit(c);
        } else {
            append_unit(0xD800 + ((c - 0x10000) >> 10));
            append_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
    return bytes;
}

std::string decode_text_file(std::string_view bytes, const std::string& file) {
    std::string text;
    if (bytes.starts_with("\xFF\xFE")) {
        text = from_utf16(bytes.substr(2), /*big_endian=*/false, file);
    } else if (bytes.starts_with("\xFE\xFF")) {
        text = from_utf16(bytes.substr(2), /*big_endian=*/true, file);
    } else {
        text = bytes.substr(bytes.starts_with("\xEF\xBB\xBF") ? 3 : 0);
    }
    check_text(text, file);
    return text;
}

}  // namespace flux2
