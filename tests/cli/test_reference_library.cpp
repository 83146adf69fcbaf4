// Named references: the folder they are in, and prompts that use them.
#include "common/reference_library.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2::cli {
namespace {

// A library of pictures that nobody reads.
struct Library {
    test::TemporaryFolder folder;

    void add(const std::string& name, std::string_view description = "") {
        touch(name + ".png");
        if (!description.empty()) {
            test::write_file(folder / (name + ".json"), description);
        }
    }
    void touch(const std::string& file) { test::write_file(folder / file, std::string_view("x")); }
    ReferenceLibrary list() const { return ReferenceLibrary(folder.path()); }
    ExpandedPrompt expand(const std::string& prompt) const {
        return expand_elements(prompt, list());
    }
    test::CaughtError error(const std::string& prompt) const {
        return test::error_of([&] { expand(prompt); });
    }
};

// The names and roles of a prompt's references.
std::string references_of(const ExpandedPrompt& prompt) {
    std::string text;
    for (const ReferenceFile& reference : prompt.references) {
        text += reference.file.filename().string() + ": " + reference.role + "\n";
    }
    return text;
}

TEST_CASE("an element becomes its name in words and a reference with a sentence") {
    Library library;
    library.add("red_robot");
    const ExpandedPrompt prompt = library.expand("@red_robot, on a beach with @red_robot.");
    CHECK(prompt.text == "red robot, on a beach with red robot.");
    CHECK(references_of(prompt) == "red_robot.png: Show red robot as in image {}.\n");
}

TEST_CASE("a description gives trigger words, and a sentence or a role") {
    Library library;
    library.add("robot", R"({"trigger": ["r0b0t", "machine"], "description": "old"})");
    library.add("oils", R"({"role": "style"})");
    library.add("hat", R"({"sentence": "Put on the hat of image {}."})");
    const ExpandedPrompt prompt = library.expand("(@robot) in @oils with a @hat!");
    CHECK(prompt.text == "(r0b0t, machine) in oils with a hat!");
    CHECK(references_of(prompt) ==
          "robot.png: Show r0b0t, machine as in image {}.\noils.png: style\n"
          "hat.png: Put on the hat of image {}.\n");
    const LibraryElement robot = library.list().find("robot");
    CHECK(robot.description == "old");
    CHECK(robot.trigger == "r0b0t, machine");
    CHECK(library.list().find("oils").sentence() == "Apply the style from image {}.");
}

TEST_CASE("an @ that begins no name or stands in a word stays") {
    Library library;
    library.add("b");
    for (const char* prompt : {"", "mail a@b or a.@b", "x @ y", "100%@", "@", "caf@b-", "@,@!"}) {
        const ExpandedPrompt expanded = library.expand(prompt);
        CHECK(expanded.text == prompt);
        CHECK(expanded.references.empty());
    }
    CHECK(library.expand("\xe7\x94\xbb@b\xe5\x9c\xa8").text ==
          "\xe7\x94\xbb"
          "b\xe5\x9c\xa8");
    CHECK(library.expand("@@b").text == "@b");
}

TEST_CASE("sentences can mention other elements, which follow") {
    Library library;
    library.add("knight", R"({"sentence": "Show the knight of image {} on @horse."})");
    library.add("horse", R"({"trigger": ["grey horse"], "sentence": "The horse is in image {}."})");
    library.add("sword");
    const ExpandedPrompt prompt = library.expand("@knight with a @sword and the @horse");
    CHECK(prompt.text == "knight with a sword and the grey horse");
    CHECK(references_of(prompt) ==
          "knight.png: Show the knight of image {} on grey horse.\n"
          "horse.png: The horse is in image {}.\nsword.png: Show sword as in image {}.\n");
}

TEST_CASE("elements that mention each other in a circle are refused with the circle") {
    Library library;
    library.add("a", R"({"sentence": "{} @b"})");
    library.add("b", R"({"sentence": "{} @c"})");
    library.add("c", R"({"sentence": "{} @b"})");
    library.add("self", R"({"sentence": "{} @self"})");
    const auto error = library.error("@a");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("mention each other: @b -> @c -> @b;"));
    CHECK(library.error("@self").mentions("@self -> @self;"));
}

TEST_CASE("an unknown element names the closest ones") {
    Library library;
    library.add("robot");
    library.add("horse");
    const auto error = library.error("a @robto on @horse");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("there is no @robto in the reference library"));
    CHECK(error.mentions("; it has robot, horse"));
    const test::TemporaryFolder empty;
    CHECK(test::error_of([&] {
              ReferenceLibrary(empty.path()).find("x");
          }).mentions("which holds no PNG, JPEG or WebP"));
    CHECK(test::error_of([] { ReferenceLibrary("/no/such/folder"); }).kind == ErrorKind::bad_file);
}

TEST_CASE("a prompt cannot name more elements than a picture takes references") {
    Library library;
    std::string prompt;
    for (int i = 0; i < 17; ++i) {
        library.add("e" + std::to_string(i));
        prompt += "@e" + std::to_string(i) + " ";
    }
    CHECK(library.error(prompt).mentions("more than 16 elements"));
}

TEST_CASE("broken descriptions are refused with the file's name") {
    for (const char* broken : {"{", "[]", "7", R"({"sentence": "no number"})", R"({"sentence": 7})",
                               R"({"role": "stile"})", R"({"role": "style", "sentence": "{}"})",
                               R"({"trigger": "x"})", R"({"trigger": [7]})", R"({"trigger": [""]})",
                               R"({"sentance": "{}"})", R"({"description": []})"}) {
        CAPTURE(broken);
        Library library;
        library.add("robot", broken);
        const auto error = library.error("@robot");
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("robot.json"));
    }
}

TEST_CASE("JPEGs and WebPs count too, two pictures of one name and stray files are told") {
    Library library;
    library.touch("a.JPG");
    library.touch("b.jpeg");
    library.touch("c.png");
    library.touch("c.jpg");
    library.touch("d.webp");
    library.touch("two words.png");
    library.touch("alone.json");
    library.touch("notes.txt");
    CHECK(library.list().names() == std::vector<std::string>{"a", "b", "c", "d"});
    const auto error = library.error("@c");
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("c.jpg or "));
    const std::vector<std::string> strays = library.list().strays();
    REQUIRE(strays.size() == 2);
    CHECK(strays[0].find("alone.json: describes no picture") != std::string::npos);
    CHECK(strays[1].find("two words.png: a prompt cannot name it") != std::string::npos);
}

}  // namespace
}  // namespace flux2::cli
