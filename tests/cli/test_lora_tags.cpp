// LoRAs that prompts name: the tags, and the files they stand for.
#include "common/lora_tags.hpp"

#include "common/prompt_tags.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& prompt) {
    return split_tags(prompt).text;
}

void touch(const fs::path& file) {
    fs::create_directories(file.parent_path());
    test::write_file(file, std::string_view("x"));
}

TEST_CASE("a tag has a name and a strength, which is 1 when it has none") {
    const TaggedPrompt split =
        split_tags("<lora:blue print-v1.5:0.8> a house <lora:ink><lora:ink:-2>");
    REQUIRE(split.tags.size() == 3);
    CHECK(split.tags[0].name == "blue print-v1.5");
    CHECK(split.tags[0].strength == 0.8f);
    CHECK(split.tags[1].name == "ink");
    CHECK(split.tags[1].strength == 1.0f);
    CHECK(split.tags[2].strength == -2.0f);
    CHECK(split.text == "a house");
}

TEST_CASE("a tag leaves no doubled space behind") {
    CHECK(text_of("a <lora:x:1> house") == "a house");
    CHECK(text_of("a<lora:x:1> house") == "a house");
    CHECK(text_of("a house <lora:x:1>") == "a house");
    CHECK(text_of("a house <lora:x:1> <lora:y:1> ") == "a house");
    CHECK(text_of("a <lora:x:1>  <lora:y:1> house") == "a house");
    CHECK(text_of("a house, <lora:x:1>, by the sea") == "a house, , by the sea");
    CHECK(text_of("<lora:x:1>") == "");
}

TEST_CASE("a prompt without tags stays as it is") {
    for (const char* prompt : {"", "  a  house ", "a < b > c", "<b>lora:x:1</b>", "<Lora:x:1>",
                               "lora:x:1", "caf\xc3\xa9 \xff"}) {
        CHECK(text_of(prompt) == prompt);
        CHECK(split_tags(prompt).tags.empty());
    }
}

TEST_CASE("a broken tag is refused") {
    for (const char* prompt :
         {"<lora:x:1 a house", "<lora:", "<lora:>", "<lora::1>", "<lora:x:>", "<lora:x:strong>",
          "<lora:x:0.5:0.5>", "<lora:x:nan>", "<lora:a<lora:x:1>b:1>"}) {
        CAPTURE(prompt);
        CHECK(test::error_of([&] { split_tags(prompt); }).kind == ErrorKind::bad_argument);
    }
    CHECK(test::error_of([] {
              split_tags("<lora:x:strong>");
          }).mentions("the strength in <lora:x:strong> takes a number, not 'strong'"));
}

TEST_CASE("a path in a tag is refused") {
    for (const char* prompt : {"<lora:../x:1>", "<lora:a/x:1>", "<lora:a\\x:1>", "<lora:..:1>"}) {
        CAPTURE(prompt);
        const auto error = test::error_of([&] { split_tags(prompt); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("holds a path"));
    }
}

TEST_CASE("a name is looked up in the folder and the folders in it") {
    const test::TemporaryFolder folder;
    touch(folder / "a.safetensors");
    touch(folder / "styles/b.GGUF");
    touch(folder / "styles/old/a.safetensors");
    touch(folder / "readme.txt");
    const LoraFolder loras(folder.path());
    CHECK(loras.find("a") == folder / "a.safetensors");
    CHECK(loras.find("b") == folder / "styles/b.GGUF");
    for (const char* missing : {"readme", "A", "a.safetensors", "styles", ""}) {
        CAPTURE(missing);
        const auto error = test::error_of([&] { loras.find(missing); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("; it has "));
    }
}

TEST_CASE("two files of one name in one depth are refused, with both") {
    const test::TemporaryFolder folder;
    touch(folder / "x/a.safetensors");
    touch(folder / "y/a.gguf");
    const auto error = test::error_of([&] { LoraFolder(folder.path()).find("a"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions((folder / "x/a.safetensors").string()));
    CHECK(error.mentions((folder / "y/a.gguf").string()));
}

TEST_CASE("an unknown name is answered by the closest ones") {
    const test::TemporaryFolder folder;
    CHECK(test::error_of([&] {
              LoraFolder(folder.path()).find("x");
          }).mentions("holds no .safetensors or .gguf file"));
    for (const char* name : {"blueprint", "ink", "oil", "pencil", "chalk", "neon", "clay", "pixel",
                             "Blueprints", "wool"}) {
        touch(folder / (std::string(name) + ".safetensors"));
    }
    const auto error = test::error_of([&] { LoraFolder(folder.path()).find("bluprint"); });
    CHECK(error.mentions("there is no LoRA 'bluprint' in " + folder.path().string()));
    CHECK(error.mentions("; the closest are blueprint, Blueprints, "));
}

TEST_CASE("a link in a circle ends the search no later") {
    const test::TemporaryFolder folder;
    touch(folder / "in/a.safetensors");
    fs::create_directory_symlink(folder.path(), folder / "in/again");
    CHECK(LoraFolder(folder.path()).find("a") == folder / "in/a.safetensors");
}

TEST_CASE("tags become adapters of their prompt with the filters of the run") {
    const test::TemporaryFolder folder;
    touch(folder / "a.safetensors");
    GenerateOptions o;
    o.lora_folder = folder.path();
    o.adapter_filters.exclude = "mlp";
    const std::vector<AdaptedPrompt> prompts =
        resolve_tags({"one <lora:a:0.5> <lora:a:0.25>", "two"}, o);
    REQUIRE(prompts.size() == 2);
    CHECK(prompts[0].text == "one");
    REQUIRE(prompts[0].adapters.size() == 2);  // each adds its own
    CHECK(prompts[0].adapters[0].file == folder / "a.safetensors");
    CHECK(prompts[0].adapters[0].strength == 0.5f);
    CHECK(prompts[0].adapters[0].exclude == "mlp");
    CHECK(prompts[0].adapters[1].strength == 0.25f);
    CHECK(prompts[1].text == "two");
    CHECK(prompts[1].adapters.empty());
}

TEST_CASE("a tag without a folder says what to add, and a prompt without tags needs none") {
    const auto error = test::error_of([] { resolve_tags({"one <lora:a:0.5>"}, {}); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("add --lora-dir FOLDER"));
    CHECK(resolve_tags({"one"}, {}).front().text == "one");
}

}  // namespace
}  // namespace flux2::cli
