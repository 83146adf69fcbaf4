// Lines that are typed in a session: settings or prompts.
#include "common/setting_line.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2::cli {
namespace {

using Strings = std::vector<std::string>;

const std::set<std::string> kKeys = {"width",  "height",       "steps", "negative_prompt",
                                     "prompt", "input_images", "init"};

std::vector<LineSetting> settings_of(const std::string& line) {
    const auto settings = parse_setting_line(line, kKeys);
    REQUIRE(settings);
    return *settings;
}

// "key=text" of each, in order.
Strings texts_of(const std::string& line) {
    Strings texts;
    for (const LineSetting& setting : settings_of(line)) {
        texts.push_back(setting.key + "=" + setting.text());
    }
    return texts;
}

bool is_prompt(const std::string& line) {
    return !parse_setting_line(line, kKeys);
}

TEST_CASE("a line has one setting or several, with spaces as one likes") {
    CHECK(texts_of("width=512") == Strings{"width=512"});
    CHECK(texts_of("width=512 height=256 steps=4") ==
          Strings{"width=512", "height=256", "steps=4"});
    CHECK(texts_of("  width = 512\theight =256 ") == Strings{"width=512", "height=256"});
    CHECK(texts_of("width=") == Strings{"width="});
    CHECK(texts_of("width= height= steps=4") == Strings{"width=", "height=", "steps=4"});
    CHECK(texts_of("width=512 width=64") == Strings{"width=512", "width=64"});
}

TEST_CASE("a value without quotes goes on to the next setting") {
    CHECK(texts_of("negative_prompt=blurry, dark sky") ==
          Strings{"negative_prompt=blurry, dark sky"});
    CHECK(texts_of("negative_prompt=blurry, dark width=64") ==
          Strings{"negative_prompt=blurry, dark", "width=64"});
    CHECK(texts_of("prompt=a house, x=y and a 5\" disk height=64") ==
          Strings{"prompt=a house, x=y and a 5\" disk", "height=64"});
    CHECK(texts_of("prompt=the subwidth=5") == Strings{"prompt=the subwidth=5"});
    CHECK(texts_of("init=C:\\new\\a b.png") == Strings{"init=C:\\new\\a b.png"});
}

TEST_CASE("quotes hold anything") {
    CHECK(texts_of(R"(negative_prompt="blurry, width=3" width=64)") ==
          Strings{"negative_prompt=blurry, width=3", "width=64"});
    CHECK(texts_of(R"(prompt="say \"hello\" = now")") == Strings{R"(prompt=say "hello" = now)"});
    CHECK(texts_of(R"(init="C:\new\a b.png")") == Strings{R"(init=C:\new\a b.png)"});
    CHECK(texts_of(R"(prompt="" width=64)") == Strings{"prompt=", "width=64"});
}

TEST_CASE("lists are separated at commas outside quotes") {
    CHECK(settings_of("input_images=a.png,$1 , b c.png")[0].items ==
          Strings{"a.png", "$1", "b c.png"});
    CHECK(settings_of(R"(input_images="a, b.png" , "c.png",d.png width=64)")[0].items ==
          Strings{"a, b.png", "c.png", "d.png"});
    CHECK(settings_of("input_images=")[0].items.empty());
    CHECK(settings_of("input_images= width=64")[0].items.empty());
    CHECK(settings_of(R"(input_images="")")[0].items == Strings{""});
}

TEST_CASE("a line that does not begin with a setting is a prompt") {
    for (const char* line :
         {"", "a red house", "the house = at night", "E=mc2", "a sign that says width=512", "x=1",
          "a width=5", "Width=5", "steps", "width 512", "=", "\"width\"=5", "width, height=5"}) {
        CAPTURE(line);
        CHECK(is_prompt(line));
    }
    const auto error = test::error_of([] { parse_setting_line("widht=64", kKeys); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("there is no setting widht"));
}

TEST_CASE("broken quotes are refused by the setting's name") {
    const auto refused = [](const std::string& line, const char* words) {
        const auto error = test::error_of([&] { texts_of(line); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK_MESSAGE(error.mentions(words), error.message);
    };
    refused(R"(prompt="a house)", "prompt: a quote is not closed");
    refused(R"(prompt="a house\")", "prompt: a quote is not closed");
    refused(R"(width=64 prompt=")", "prompt: a quote is not closed");
    refused(R"(prompt="a house" at night)", "after the closing quote comes 'at night'");
    refused(R"(prompt="a"b)", "after the closing quote comes 'b'");
    refused(R"(negative_prompt="a","b")", "negative_prompt takes one value, not 2");
}

}  // namespace
}  // namespace flux2::cli
