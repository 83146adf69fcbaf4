#include "text/split.hpp"
#include "text/unicode.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

std::vector<std::string> pieces(std::string_view text, Split split = Split::qwen) {
    const std::u32string points = from_utf8(text);
    std::vector<std::string> result;
    for (size_t at = 0; at < points.size();) {
        const std::u32string_view piece = next_piece(split, points, at);
        REQUIRE_FALSE(piece.empty());
        result.push_back(to_utf8(piece));
        at += piece.size();
    }
    return result;
}

using Pieces = std::vector<std::string>;

// Expected pieces in this file: the pattern applied by Python's module regex, findall().

TEST_CASE("words take the space or the sign before them") {
    CHECK(pieces("a lovely cat") == Pieces{"a", " lovely", " cat"});
    CHECK(pieces("(hello)-world") == Pieces{"(hello", ")-", "world"});
    CHECK(pieces("\tx _y") == Pieces{"\tx", " _", "y"});
    CHECK(pieces("\nx") == Pieces{"\n", "x"});
    CHECK(pieces("\u4e2d\u6587abc \u0436\u0436") == Pieces{"\u4e2d\u6587abc", " \u0436\u0436"});
}

TEST_CASE("contractions are cut off, whatever their case") {
    CHECK(pieces("it's I'LL don'T we'Re 'd've") ==
          Pieces{"it", "'s", " I", "'LL", " don", "'T", " we", "'Re", " '", "d", "'ve"});
    // Only the listed ones, only after this apostrophe; the pattern does not ask what follows.
    CHECK(pieces("'x'lx'r'") == Pieces{"'x", "'lx", "'r", "'"});
    CHECK(pieces("it\u2019s") == Pieces{"it", "\u2019s"});
    CHECK(pieces("'sun") == Pieces{"'s", "un"});
    // Unicode folds the long s to an s.
    CHECK(pieces("'\u017fun") == Pieces{"'\u017f", "un"});
}

TEST_CASE("digits stand alone") {
    CHECK(pieces("in 2026, 3.14") ==
          Pieces{"in", " ", "2", "0", "2", "6", ",", " ", "3", ".", "1", "4"});
    CHECK(pieces("x2\u00bd\u0664") == Pieces{"x", "2", "\u00bd", "\u0664"});
}

TEST_CASE("signs keep together and take line breaks along") {
    CHECK(pieces("a !?\r\n\nb") == Pieces{"a", " !?\r\n\n", "b"});
    CHECK(pieces("...  --") == Pieces{"...", " ", " --"});
    CHECK(pieces("\u00a0!") == Pieces{"\u00a0", "!"});  // only a plain space is taken along
    CHECK(pieces("\U0001F600\U0001F600 \U0001F600") ==
          Pieces{"\U0001F600\U0001F600", " \U0001F600"});
    CHECK(pieces("\u200bx\ufeff!") == Pieces{"\u200bx", "\ufeff!"});
}

TEST_CASE("combining marks are not letters") {
    CHECK(pieces("x\u0323y") == Pieces{"x", "\u0323y"});
    CHECK(pieces("x\u0323\u0307y") == Pieces{"x", "\u0323\u0307", "y"});
}

TEST_CASE("spaces go up to the last line break, then leave one for the next word") {
    CHECK(pieces("a   b") == Pieces{"a", "  ", " b"});
    CHECK(pieces("a   ") == Pieces{"a", "   "});
    CHECK(pieces("a   1") == Pieces{"a", "  ", " ", "1"});
    CHECK(pieces("a \n \r\n  b") == Pieces{"a", " \n \r\n", " ", " b"});
    CHECK(pieces("a\r\nb\rc") == Pieces{"a", "\r\n", "b", "\r", "c"});
    CHECK(pieces(" \t\n") == Pieces{" \t\n"});
    CHECK(pieces("a\u00a0\u00a0b") == Pieces{"a", "\u00a0", "\u00a0b"});
    CHECK(pieces("\u3000\u3000!") == Pieces{"\u3000", "\u3000", "!"});
    CHECK(pieces("a\u0085\u2028b") == Pieces{"a", "\u0085", "\u2028b"});
    CHECK(pieces("\t 1") == Pieces{"\t", " ", "1"});
}

TEST_CASE("Tekken begins a new piece at a capital") {
    const auto tekken = [](std::string_view text) { return pieces(text, Split::tekken); };
    CHECK(tekken("a lovely Cat") == Pieces{"a", " lovely", " Cat"});
    CHECK(tekken("HelloWorld USA") == Pieces{"Hello", "World", " USA"});
    CHECK(tekken("iPhone XMLHttpRequest") == Pieces{"i", "Phone", " XMLHttp", "Request"});
    CHECK(tekken("(Hello)-WORLD") == Pieces{"(Hello", ")-", "WORLD"});
    CHECK(tekken("it's I'LL don't") == Pieces{"it", "'s", " I", "'LL", " don", "'t"});
    // Title case begins a word; letters without case belong everywhere.
    CHECK(tekken("\u01c5a\u01c5B") == Pieces{"\u01c5a", "\u01c5B"});
    CHECK(tekken("\u4e2d\u6587ABC\u4e2dx") == Pieces{"\u4e2d\u6587ABC\u4e2dx"});
    CHECK(tekken("\u02b0A\u02b0") == Pieces{"\u02b0A\u02b0"});
}

TEST_CASE("Tekken counts marks as letters, and ends a word of capitals at the last") {
    const auto tekken = [](std::string_view text) { return pieces(text, Split::tekken); };
    CHECK(tekken("AB\u0301CD") == Pieces{"AB\u0301", "CD"});
    CHECK(tekken("AB\u0301") == Pieces{"AB\u0301"});
    CHECK(tekken("\u0301\u0301a") == Pieces{"\u0301\u0301a"});
    CHECK(tekken("\u0301A \u0301") == Pieces{"\u0301", "A", " \u0301"});
    CHECK(tekken("e\u0301a E\u0301A") == Pieces{"e\u0301a", " E\u0301", "A"});
}

TEST_CASE("Tekken's signs take slashes after line breaks along") {
    const auto tekken = [](std::string_view text) { return pieces(text, Split::tekken); };
    CHECK(tekken("http://a/b//c\n/\n/d") ==
          Pieces{"http", "://", "a", "/b", "//", "c", "\n", "/\n/", "d"});
    CHECK(tekken(" //\n/x") == Pieces{" //\n/", "x"});
    CHECK(tekken("!\n\n a") == Pieces{"!\n\n", " a"});
    CHECK(tekken("in 2026, x2") == Pieces{"in", " ", "2", "0", "2", "6", ",", " x", "2"});
    CHECK(tekken("  two  spaces \n\n x  ") ==
          Pieces{" ", " two", " ", " spaces", " \n\n", " x", "  "});
}

}  // namespace
}  // namespace flux2
