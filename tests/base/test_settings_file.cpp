#include "base/settings_file.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2 {
namespace {

SettingsFile read(const std::string& text) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", text);
    return read_settings_file(folder / "flux2.ini");
}

}  // namespace

TEST_CASE("a file of settings has values in sections, comments and quotes") {
    const SettingsFile file = read(
        "# a comment\n"
        "device = CUDA0   ; another\n"
        "\n"
        "[portrait]\r\n"
        "--Negative_prompt = \"a # b\"\r\n"
        "lora=x#1.safetensors\n"
        "[empty]\n");
    REQUIRE(file.lines.size() == 3);
    CHECK(file.lines[0].section.empty());
    CHECK(file.lines[0].option == "device");
    CHECK(file.lines[0].value == "CUDA0");
    CHECK(file.lines[0].number == 2);
    CHECK(file.lines[1].section == "portrait");
    CHECK(file.lines[1].option == "Negative-prompt");
    CHECK(file.lines[1].value == "a # b");
    CHECK(file.lines[2].value == "x#1.safetensors");
    CHECK(file.sections == std::vector<std::string>{"portrait", "empty"});
    CHECK(file.place(file.lines[1]) == file.path.string() + ":5");
}

TEST_CASE("a line that is no setting is refused with file and line") {
    for (const char* text : {"width\n", "x = 1\n= 2\n", "[]\n", "[portrait\n"}) {
        CAPTURE(std::string(text));
        const test::CaughtError error = test::error_of([&] { read(text); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions(std::string("flux2.ini:") + (text[0] == 'x' ? "2" : "1") + ": '"));
    }
}

TEST_CASE("a file of settings that is not there has no lines") {
    CHECK(read_settings_file("/nowhere/flux2.ini").lines.empty());
    CHECK(read_settings_file("").lines.empty());
}

}  // namespace flux2
