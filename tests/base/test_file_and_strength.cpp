#include "base/file_and_strength.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2 {
namespace {

FileAndStrength parsed(const std::string& text) {
    return parse_file_and_strength("--lora", text);
}

TEST_CASE("a number after the last colon is a strength") {
    const auto check_parsed = [](const char* text, const char* file, float strength) {
        CAPTURE(text);
        CHECK(parsed(text).file == file);
        CHECK(parsed(text).strength == strength);
    };
    check_parsed("x.safetensors", "x.safetensors", 1.0f);
    check_parsed("x.safetensors:0.8", "x.safetensors", 0.8f);
    check_parsed("x.gguf:-2", "x.gguf", -2.0f);
    check_parsed("x.safetensors:0", "x.safetensors", 0.0f);
    check_parsed("a:b:0.5", "a:b", 0.5f);
    check_parsed("a/b:c.safetensors:1.5", "a/b:c.safetensors", 1.5f);
    check_parsed("a/b:c.safetensors", "a/b:c.safetensors", 1.0f);
    // A drive letter.
    check_parsed("C:\\loras\\x.safetensors", "C:\\loras\\x.safetensors", 1.0f);
    check_parsed("C:\\loras\\x.safetensors:0.5", "C:\\loras\\x.safetensors", 0.5f);
    check_parsed("d:7", "d:7", 1.0f);
    // Not there; the message about the missing file has all of it.
    check_parsed("x.safetensors:strong", "x.safetensors:strong", 1.0f);
}

TEST_CASE("a file that exists is taken whole, and an odd strength is named") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "a:0.5", std::string_view("x"));
    CHECK(parsed((folder / "a:0.5").string()).file == folder / "a:0.5");
    CHECK(parsed((folder / "a:0.5").string()).strength == 1.0f);
    CHECK(parsed((folder / "a:0.5:0.25").string()).file == folder / "a:0.5");
    CHECK(parsed((folder / "a:0.5:0.25").string()).strength == 0.25f);
    for (const char* strength : {"strong", "", "nan", "1e99", "0,8"}) {
        CAPTURE(strength);
        const auto error = test::error_of([&] { parsed((folder / "a:0.5:").string() + strength); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(std::string("'") + strength + "' is no strength"));
        CHECK(error.mentions("--lora"));
    }
    for (const char* nameless : {"", ":0.5"}) {
        CAPTURE(nameless);
        CHECK(test::error_of([&] { parsed(nameless); }).kind == ErrorKind::bad_argument);
    }
}

}  // namespace
}  // namespace flux2
