// Reference pictures as users name them.
#include "common/reference_options.hpp"

#include "common/options.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <flux2/flux2.hpp>

namespace flux2::cli {
namespace {

TEST_CASE("a known word before the first = is the role of the file after it") {
    CHECK(parse_reference("style=a.png") == ReferenceFile{"a.png", "style"});
    CHECK(parse_reference("pose=b=c.png") == ReferenceFile{"b=c.png", "pose"});
    CHECK(parse_reference("a.png") == ReferenceFile{"a.png", ""});
    // No words.
    for (const char* name : {"x/style=a.png", "a1=b.png", "=a.png", "my style=a.png"}) {
        CHECK(parse_reference(name) == ReferenceFile{name, ""});
    }
}

TEST_CASE("an existing file of the whole name is meant, whatever it begins with") {
    const test::TemporaryFolder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    for (const char* name : {"style=a.png", "stile=a.png"}) {
        test::write_file(name, std::string_view("x"));
        CHECK(parse_reference(name) == ReferenceFile{name, ""});
    }
    std::filesystem::current_path(before);
}

TEST_CASE("an unknown word names the roles") {
    for (const char* text : {"stile=/no/a.png", "Style=a.png"}) {
        const auto error = test::error_of([&] { parse_reference(text); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("is no role; roles are style, pose, depth"));
    }
    CHECK(test::error_of([] { parse_reference("style="); }).mentions("use style=FILE"));
}

TEST_CASE("the size of references is a word, pixels, or width and height") {
    const auto parse = [](const char* text) {
        return parse_reference_pixels("--ref-resolution", text);
    };
    CHECK(parse("full") == 0);
    CHECK(parse("500000") == 500000);
    CHECK(parse("768x512") == 768 * 512);
    CHECK(parse("65536x65536") == int64_t{65536} * 65536);
    for (const char* wrong : {"", "0", "-5", "0x512", "512x", "x", "1MP", "512x512x3", "Full"}) {
        CAPTURE(wrong);
        const auto error = test::error_of([&] { parse(wrong); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("--ref-resolution"));
    }
}

TEST_CASE("the help of the references' option names every role") {
    cxxopts::Options options("flux2");
    add_generate_options(options);
    const std::string help = help_of(options);
    for (const ReferenceRole& role : reference_roles()) {
        CHECK_MESSAGE(help.find(role.word) != std::string::npos, role.word);
    }
}

}  // namespace
}  // namespace flux2::cli
