#include "base/utf8.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace flux2;
using namespace flux2::test;

namespace {

std::string decoded(std::string_view bytes) {
    return decode_text_file(bytes, "prompts.txt");
}

// Literals with zero bytes in them.
template <size_t N>
std::string_view bytes(const char (&text)[N]) {
    return {text, N - 1};
}

CaughtError refused(std::string_view bytes) {
    const auto error = error_of([&] { decoded(bytes); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("prompts.txt"));
    CHECK(error.mentions("save"));
    return error;
}

}  // namespace

TEST_CASE("bytes that are no UTF-8 become replacement characters, all others stay") {
    const std::string text = "a\xC3\xA4\xE7\xBA\xA2\xF0\x9F\x8C\xB2";
    CHECK(as_utf8(text) == text);
    CHECK(as_utf8("") == "");
    CHECK(as_utf8("a\xFF"
                  "b\xE7\xBA") ==
          "a\xEF\xBF\xBD"
          "b\xEF\xBF\xBD");
    for (size_t from = 0; from <= text.size(); ++from) {
        for (size_t n = 0; from + n <= text.size(); ++n) {
            CHECK(is_utf8(as_utf8(text.substr(from, n))));
        }
    }
}

TEST_CASE("the start of a text ends between code points") {
    const std::string text = "a\xC3\xA4\xE7\xBA\xA2\xF0\x9F\x8C\xB2";
    const std::vector<size_t> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (size_t n = 0; n < expected.size(); ++n) {
        CHECK(utf8_start(text, n) == text.substr(0, expected[n]));
    }
}

TEST_CASE("UTF-8 stays as it is, without its byte-order mark") {
    CHECK(decoded("") == "");
    CHECK(decoded("a b\xC3\xA4r\r\nx\n") == "a b\xC3\xA4r\r\nx\n");
    CHECK(decoded("\xEF\xBB\xBF"
                  "a\n") == "a\n");
    CHECK(decoded("\xEF\xBB\xBF") == "");
    // A replacement character that somebody wrote is no error.
    CHECK(decoded("\xEF\xBF\xBD") == "\xEF\xBF\xBD");
}

TEST_CASE("UTF-16 of both byte orders becomes UTF-8") {
    // "aä€😀" and a line end, the last character as a pair of surrogates.
    const std::string expected = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\r\n";
    CHECK(decoded(bytes("\xFF\xFE"
                        "a\0\xE4\0\xAC\x20\x3D\xD8\0\xDE\r\0\n\0")) == expected);
    CHECK(decoded(bytes("\xFE\xFF\0a\0\xE4\x20\xAC\xD8\x3D\xDE\0\0\r\0\n")) == expected);
}

TEST_CASE("broken UTF-16 is refused with its line") {
    // Half a character, half a pair, and a second half alone.
    CHECK(refused(bytes("\xFF\xFE"
                        "a\0\n\0b"))
              .mentions("line 2"));
    CHECK(refused(bytes("\xFF\xFE\x3D\xD8"
                        "a\0"))
              .mentions("line 1"));
    CHECK(refused(bytes("\xFF\xFE"
                        "a\0\x3D\xD8"))
              .mentions("line 1"));
    CHECK(refused(bytes("\xFF\xFE\n\0\n\0\0\xDE")).mentions("line 3"));
}

TEST_CASE("text in memory goes from UTF-8 to UTF-16 and back") {
    const std::string utf8 = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";
    const std::string utf16(bytes("\0a\0\xE4\x20\xAC\xD8\x3D\xDE\0"));
    CHECK(utf16_from_utf8(utf8) == utf16);
    CHECK(utf8_from_utf16(utf16, /*big_endian=*/true) == utf8);
    CHECK(utf8_from_utf16(bytes("a\0\xE4\0"), /*big_endian=*/false) == "a\xC3\xA4");
    CHECK(!utf8_from_utf16(bytes("\0a\0"), /*big_endian=*/true));
    CHECK(!utf8_from_utf16(bytes("\xD8\x3D"), /*big_endian=*/true));
    CHECK(is_utf8(utf8));
    CHECK(!is_utf8("b\xE4r"));
}

TEST_CASE("bytes that are not UTF-8 are refused with their line") {
    CHECK(refused("a\nb\nb\xE4r\n").mentions("line 3"));                 // Latin-1
    CHECK(refused("\xC0\x80").mentions("line 1"));                       // overlong
    CHECK(refused("\xED\xA0\x80").mentions("line 1"));                   // a surrogate
    CHECK(refused("\xF4\x90\x80\x80").mentions("line 1"));               // past U+10FFFF
    CHECK(refused("a\n\xE2\x82").mentions("line 2"));                    // cut off
    CHECK(refused(bytes("a\0b\0\n\0")).mentions("zero byte"));           // UTF-16 without a mark
    CHECK(refused(bytes("\xFF\xFE\0\0a\0\0\0")).mentions("zero byte"));  // UTF-32
}
