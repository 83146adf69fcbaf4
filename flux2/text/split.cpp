#include "text/split.hpp"

#include "text/unicode.hpp"

#include <array>

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

// ' ?[^\s\p{L}\p{N}]+' and what may follow
size_t signs(std::u32string_view text, size_t at, bool (*may_follow)(char32_t)) {
    const size_t begin = text[at] == U' ' ? at + 1 : at;
    const size_t end = run_end(text, begin, is_other);
    return end > begin ? run_end(text, end, may_follow) : at;
}

// ' ?[^\s\p{L}\p{N}]+[\r\n]*'
size_t punctuation(std::u32string_view text, size_t at) {
    return signs(text, at, is_newline);
}

// ' ?[^\s\p{L}\p{N}]+[\r\n/]*'
size_t tekken_punctuation(std::u32string_view text, size_t at) {
    return signs(text, at, [](char32_t c) { return is_newline(c) || c == U'/'; });
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, or `begin` for none.
size_t lower_word(std::u32string_view text, size_t begin) {
    const size_t upper = run_end(text, begin, is_upper_or_caseless);
    const size_t end = run_end(text, upper, is_lower_or_caseless);
    if (end > upper) {
        return end;
    }
    // Backtracking: the second run needs one character, so the first gives up its last character
    // that belongs to both classes.
    for (size_t i = upper; i > begin; --i) {
        if (is_lower_or_caseless(text[i - 1])) {
            return i;
        }
    }
    return begin;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*, or `begin` for none.
size_t upper_word(std::u32string_view text, size_t begin) {
    const size_t upper = run_end(text, begin, is_upper_or_caseless);
    return upper > begin ? run_end(text, upper, is_lower_or_caseless) : begin;
}

// [^\r\n\p{L}\p{N}]? before one of the two. A mark may match either, so both are tried.
size_t after_sign(std::u32string_view text, size_t at,
                  size_t (*rest)(std::u32string_view, size_t)) {
    const char32_t c = text[at];
    const bool prefix = !is_newline(c) && !is_letter(c) && !is_number(c);
    const size_t end = prefix ? rest(text, at + 1) : at + 1;
    return end > at + 1 ? end : rest(text, at);
}

size_t tekken_lower_word(std::u32string_view text, size_t at) {
    return after_sign(text, at, lower_word);
}

size_t tekken_upper_word(std::u32string_view text, size_t at) {
    return after_sign(text, at, upper_word);
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
    // The last of several spaces before other text belongs to that text.
    const bool leave_one = end < text.size() && end - at > 1;
    return leave_one ? end - 1 : end;
}

}  // namespace

std::u32string_view next_piece(Split split, std::u32string_view text, size_t begin) {
    static constexpr std::array kQwen = {contraction, word, digit, punctuation, space};
    static constexpr std::array kTekken = {tekken_lower_word, tekken_upper_word, digit,
                                           tekken_punctuation, space};
    for (const auto alternative : split == Split::qwen ? kQwen : kTekken) {
        const size_t end = alternative(text, begin);
        if (end > begin) {
            return text.substr(begin, end - begin);
        }
    }
    return text.substr(begin, 1);  // not reached: every character matches some alternative
}

}  // namespace flux2
