#include "text/unicode.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"

#include <utf8proc.h>
#include <algorithm>
#include <cstdint>
#include <vector>

namespace flux2 {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Canonical decomposition, marks not yet in order.
std::vector<utf8proc_int32_t> decompose(std::u32string_view text) {
    constexpr utf8proc_ssize_t kMaxDecomposed = 18;  // Unicode's bound; canonical ones stay below 5
    std::vector<utf8proc_int32_t> points;
    points.reserve(text.size());
    for (const char32_t c : text) {
        utf8proc_int32_t decomposed[kMaxDecomposed];
        const utf8proc_ssize_t n =
            utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), decomposed, kMaxDecomposed,
                                    static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), nullptr);
        if (n < 0 || n > kMaxDecomposed) {
            fail(ErrorKind::internal, "utf8proc cannot decompose code point ",
                 static_cast<uint32_t>(c));
        }
        points.insert(points.end(), decomposed, decomposed + n);
    }
    return points;
}

// Sorts each run of marks by combining class, stably. utf8proc's own ordering is quadratic and
// takes seconds for a prompt made of marks.
void order_marks(std::vector<utf8proc_int32_t>& points) {
    const auto combining_class = [](utf8proc_int32_t c) {
        return utf8proc_get_property(c)->combining_class;
    };
    const auto is_starter = [&](utf8proc_int32_t c) { return combining_class(c) == 0; };
    for (auto begin = points.begin(); begin != points.end();) {
        begin = std::find_if_not(begin, points.end(), is_starter);
        const auto end = std::find_if(begin, points.end(), is_starter);
        std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
            return combining_class(a) < combining_class(b);
        });
        begin = end;
    }
}

}  // namespace

std::u32string from_utf8(std::string_view text) {
    std::u32string points;
    points.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        points.push_back(next_code_point(text, at).value_or(kReplacement));
    }
    return points;
}

std::string to_utf8(std::u32string_view text) {
    std::string bytes;
    bytes.reserve(text.size());
    for (const char32_t c : text) {
        append_utf8(bytes, c);
    }
    return bytes;
}

std::u32string nfc(std::u32string_view text) {
    constexpr char32_t kFirstMark = 0x300;  // text of lower code points only is already normalised
    if (std::all_of(text.begin(), text.end(), [](char32_t c) { return c < kFirstMark; })) {
        return std::u32string(text);
    }
    std::vector<utf8proc_int32_t> points = decompose(text);
    order_marks(points);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
    check(n >= 0, ErrorKind::internal, "utf8proc cannot compose the text");
    return {points.begin(), points.begin() + n};
}

bool is_letter(char32_t c) {
    const auto found = category(c);
    return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}

bool is_number(char32_t c) {
    const auto found = category(c);
    return found >= UTF8PROC_CATEGORY_ND && found <= UTF8PROC_CATEGORY_NO;
}

bool is_upper_or_caseless(char32_t c) {
    const auto found = category(c);
    return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_ME &&
           found != UTF8PROC_CATEGORY_LL;
}

bool is_lower_or_caseless(char32_t c) {
    const auto found = category(c);
    return found == UTF8PROC_CATEGORY_LL ||
           (found >= UTF8PROC_CATEGORY_LM && found <= UTF8PROC_CATEGORY_ME);
}

// White_Space is a fixed list; Unicode has not changed it since version 6.3.
bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

}  // namespace flux2
