#include "text/unicode.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace flux2 {
namespace {

TEST_CASE("UTF-8 is decoded and encoded") {
    const std::string text = "a\u00e9\u4e2d\U0001F600";
    CHECK(from_utf8(text) == U"a\u00e9\u4e2d\U0001F600");
    CHECK(to_utf8(from_utf8(text)) == text);
    CHECK(from_utf8("").empty());
    CHECK(from_utf8(std::string("\0x", 2)) == std::u32string(U"\0x", 2));
    for (const char32_t c :
         {0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
        const std::u32string one(1, c);
        CHECK(from_utf8(to_utf8(one)) == one);
    }
}

// Expected values are those of Python: bytes.decode("utf-8", errors="replace").
TEST_CASE("what is not UTF-8 becomes the replacement character") {
    struct Case {
        std::string bytes;
        std::u32string expected;
    };
    const std::vector<Case> cases = {
        {"\x80", U"\uFFFD"},                            // a continuation byte alone
        {"\xff\xfe", U"\uFFFD\uFFFD"},                  // never part of UTF-8
        {"a\xe4\xb8", U"a\uFFFD"},                      // cut at the end: one beginning, one mark
        {"\xe4\xb8z", U"\uFFFDz"},                      // cut by another character
        {"\xf0\x9f\x98\xe4\xb8\xad", U"\uFFFD\u4e2d"},  // cut by another sequence
        {"\xc0\xaf", U"\uFFFD\uFFFD"},                  // overlong
        {"\xe0\x80\xaf", U"\uFFFD\uFFFD\uFFFD"},
        {"\xed\xa0\x80", U"\uFFFD\uFFFD\uFFFD"},            // a surrogate
        {"\xf4\x90\x80\x80", U"\uFFFD\uFFFD\uFFFD\uFFFD"},  // past U+10FFFF
        {"\xc3\xa9\xc3", U"\u00e9\uFFFD"},
    };
    for (const Case& c : cases) {
        CAPTURE(c.bytes);
        CHECK(from_utf8(c.bytes) == c.expected);
    }
}

// From the Unicode Standard, annex 15, and NormalizationTest.txt.
TEST_CASE("text is normalised to form C") {
    struct Case {
        std::u32string text;
        std::u32string expected;
    };
    const std::vector<Case> cases = {
        {U"", U""},
        {U"plain", U"plain"},
        {U"e\u0301", U"\u00e9"},
        {U"\u00e9", U"\u00e9"},
        {U"\u212B", U"\u00C5"},  // the angstrom sign is a letter
        {U"A\u030A", U"\u00C5"},
        {U"q\u0307\u0323", U"q\u0323\u0307"},  // marks in their order
        {U"d\u0307\u0323", U"\u1E0D\u0307"},   // and one of them composed
        {U"\u1112\u1161\u11AB", U"\uD55C"},    // Hangul
        {U"\u0958", U"\u0915\u093C"},          // excluded from composition
        {U"\uFB01", U"\uFB01"},                // a ligature is only compatible
        {U"a\u0315\u0300\u05AE\u0300b", U"\u00E0\u05AE\u0300\u0315b"},
        {U"\u0301e", U"\u0301e"},
    };
    for (const Case& c : cases) {
        CAPTURE(to_utf8(c.text));
        CHECK(nfc(c.text) == c.expected);
        CHECK(nfc(c.expected) == c.expected);
    }
}

TEST_CASE("a text of marks alone is normalised in time") {
    std::u32string marks;
    for (int i = 0; i < 50'000; ++i) {
        marks += U"\u0315\u0323";  // classes 232 and 220: every pair stands the wrong way round
    }
    const std::clock_t start = std::clock();
    const std::u32string ordered = nfc(marks);
    const std::clock_t end = std::clock();
    CHECK(ordered == std::u32string(50'000, U'\u0323') + std::u32string(50'000, U'\u0315'));
    // Measured: 0.01 s. Swapping neighbours would take minutes; one second tells the two apart on
    // any machine, sanitizers included.
    CHECK(static_cast<double>(end - start) / CLOCKS_PER_SEC < 1.0);
}

TEST_CASE("characters fall into their classes") {
    for (const char32_t c : U"aZ\u00e9\u00aa\u02b0\u4e2d\u3042\u0436\u05d0\U0001D400\u01C5") {
        CAPTURE(static_cast<uint32_t>(c));
        CHECK(is_letter(c) == (c != 0));  // the literal's own end is a control character
        CHECK_FALSE(is_number(c));
        CHECK_FALSE(is_space(c));
    }
    for (const char32_t c : {U'0', U'9', U'\u00bd', U'\u00b2', U'\u0664', U'\u2163', U'\u3007'}) {
        CAPTURE(static_cast<uint32_t>(c));
        CHECK(is_number(c));
        CHECK_FALSE(is_letter(c));
    }
    for (const char32_t c :
         {U'\t', U'\n', U'\v', U'\f', U'\r', U' ', char32_t{0x85}, U'\u00a0', U'\u1680', U'\u2003',
          U'\u2028', U'\u2029', U'\u202f', U'\u205f', U'\u3000'}) {
        CAPTURE(static_cast<uint32_t>(c));
        CHECK(is_space(c));
    }
    // Zero-width characters, the Mongolian vowel separator, separators that are controls, marks,
    // an emoji, private use, an unassigned code point.
    for (const char32_t c :
         {U'\u200b', U'\ufeff', U'\u180e', char32_t{0x1c}, char32_t{0x1f}, U'\u0301', U'\u20dd',
          U'\U0001F600', U'\ue000', U'\u0378', U'_', U'\u200d'}) {
        CAPTURE(static_cast<uint32_t>(c));
        CHECK_FALSE(is_space(c));
        CHECK_FALSE(is_letter(c));
        CHECK_FALSE(is_number(c));
    }
}

}  // namespace
}  // namespace flux2
