#include "text/split.hpp"

#include "text/unicode.hpp"

namespace flux2 {
namespace {

bool is_newline(char32_t c) {
    return c == U'\r' || c == U'\n';
}

// Punctuation, symbols, marks, controls: what is neither space nor letter nor number.
bool is_other(char32_t c) {
    return !is_space(c) && !is_letter(c) && !is_number(c);
}

// The end of the run of characters of this class that begins at `at`.
size_t run_end(std::u32string_view text, size_t at, bool (*in_class)(char32_t)) {
    while (at < text.size() && in_class(text[at])) {
        ++at;
    }
    return at;
}

// Case folded: the long s counts as an s too, the only other character that folds to one of these.
char32_t fold(char32_t c) {
    constexpr char32_t kLongS = 0x17F;
    if (c == kLongS) {
        return U's';
    }
    return c >= U'A' && c <= U'Z' ? c - U'A' + U'a' : c;
}

// One function for each alternative: where a match that begins at `at` ends, or `at` for none.

// (?i:'s|'t|'re|'ve|'m|'ll|'d)
size_t contraction(std::u32string_view text, size_t at) {
    if (text[at] != U'\'' || at + 1 >= text.size()) {
        return at;
    }
    const char32_t first = fold(text[at + 1]);
    if (first == U's' || first == U't' || first == U'm' || first == U'd') {
        return at + 2;
    }
    const char32_t second = at + 2 < text.size() ? fold(text[at + 2]) : 0;
    const bool two = (first == U'r' && second == U'e') || (first == U'v' && second == U'e') ||
                     (first == U'l' && second == U'l');
    return two ? at + 3 : at;
}

// [^\r\n\p{L}\p{N}]?\p{L}+
size_t word(std::u32string_view text, size_t at) {
    const char32_t c = text[at];
    const bool prefix = !is_newline(c) && !is_letter(c) && !is_number(c);
    const size_t begin = prefix ? at + 1 : at;
    const size_t end = run_end(text, begin, is_letter);
    return end > begin ? end : at;
}

// \p{N}
size_t digit(std::u32string_view text, size_t at) {
    return is_number(text[at]) ? at + 1 : at;
}

// ' ?[^\s\p{L}\p{N}]+[\r\n]*'
size_t punctuation(std::u32string_view text, size_t at) {
    const size_t begin = text[at] == U' ' ? at + 1 : at;
    const size_t end = run_end(text, begin, is_other);
    return end > begin ? run_end(text, end, is_newline) : at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t space(std::u32string_view text, size_t at) {
    const size_t end = run_end(text, at, is_space);
    // Up to the last line break of the run.
    for (size_t i = end; i > at; --i) {
        if (is_newline(text[i - 1])) {
            return i;
        }
    }
    // A space before something else belongs to it, unless it is the only one.
    const bool leave_one = end < text.size() && end - at > 1;
    return leave_one ? end - 1 : end;
}

}  // namespace

std::u32string_view next_piece(std::u32string_view text, size_t begin) {
    for (const auto alternative : {contraction, word, digit, punctuation, space}) {
        const size_t end = alternative(text, begin);
        if (end > begin) {
            return text.substr(begin, end - begin);
        }
    }
    return text.substr(begin, 1);  // not reached: every character has its alternative
}

}  // namespace flux2
