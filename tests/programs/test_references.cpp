// References on the command line: roles, the library, sizes, what a picture stores of them.
#include "common/picture_facts.hpp"
#include "support/cli.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Arguments;
using test::fixture;
using test::has;
using test::joined;

std::string picture(int number) {
    return fixture("klein/ref_" + std::to_string(number) + ".png").string();
}

test::ProgramResult draw(const Arguments& arguments) {
    return test::flux2_program(joined(test::small_picture(), arguments));
}

// Makes a picture again, with a text encoder so that its prompt matters, and checks that it is the
// same.
void check_redo(const fs::path& made, const test::TemporaryFolder& folder,
                const Arguments& more = {}) {
    const fs::path again = folder / "again.png";
    const auto result = test::flux2_program(
        joined({"redo", made.string(), "--no-cache", "-o", again.string()}, more));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(load_image(again).rgb == load_image(made).rgb);
    const json first = read_picture_facts(made);
    const json second = read_picture_facts(again);
    for (const char* key :
         {"prompt", "full_prompt", "references", "reference_roles", "reference_pixels"}) {
        CAPTURE(key);
        CHECK(first.at(key) == second.at(key));
    }
}

// A run that reads its prompt.
Arguments reading(const test::TemporaryFolder& folder) {
    return joined(test::klein_parts(),
                  {"--llm", test::write_reading_encoder(folder).string(), "--text-length", "32",
                   "--steps", "1", "-W", "64", "-H", "64", "-s", "7"});
}

TEST_CASE("a picture stores the roles of its references, and redo repeats them") {
    const test::TemporaryFolder folder;
    const fs::path made = folder / "made.png";
    const auto result = test::flux2_program(
        joined(reading(folder), {"-p", "a house", "-r", picture(0), "-r", "style=" + picture(1),
                                 "--ref-resolution", "80x64", "--json", "-o", made.string()}));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const json event = json::parse(test::lines_of(result.out).back());
    CHECK(event["prompt"] == "a house");
    CHECK(event["full_prompt"] == "a house. Apply the style from image 2.");
    CHECK(event["references"] == json({picture(0), picture(1)}));
    CHECK(event["reference_roles"] == json({"", "style"}));
    CHECK(event["reference_pixels"] == 80 * 64);
    check_redo(made, folder);

    // References that are given anew have their own roles.
    const auto changed = test::flux2_program({"redo", made.string(), "--no-cache", "-r", picture(1),
                                              "-o", (folder / "changed.png").string()});
    REQUIRE_MESSAGE(changed.exit_code == 0, changed.err);
    CHECK(read_picture_facts(folder / "changed.png")["full_prompt"] == "a house");
}

TEST_CASE("prompts of one run name different elements of a library") {
    const test::TemporaryFolder folder, library;
    fs::copy_file(picture(0), library / "robot.png");
    fs::copy_file(picture(1), library / "oils.png");
    test::write_file(library / "oils.json", std::string_view(R"({"role": "style"})"));
    test::write_file(folder / "prompts",
                     std::string_view("a @robot in @oils\nplain a@b\n@oils @robot @oils\n"));
    const auto result = test::flux2_program(joined(
        reading(folder),
        {"--prompt-file", (folder / "prompts").string(), "-r", "pose=" + picture(0),
         "--ref-library", library.path().string(), "--json", "-o", (folder / "%d.png").string()}));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    for (const std::string& line : test::lines_of(result.out)) {
        // Each prompt was encoded ahead, with its own sentences.
        CHECK(json::parse(line).value("prompt_cached", true));
    }
    const auto fact = [&](const char* name, const char* key) {
        return read_picture_facts(folder / name)[key];
    };
    CHECK(fact("1.png", "prompt") == "a robot in oils");
    CHECK(fact("1.png", "full_prompt") ==
          "a robot in oils. Match the pose in image 1. Show robot as in image 2. Apply the style "
          "from image 3.");
    CHECK(fact("1.png", "references") ==
          json({picture(0), (library / "robot.png").string(), (library / "oils.png").string()}));
    CHECK(fact("2.png", "full_prompt") == "plain a@b. Match the pose in image 1.");
    CHECK(fact("2.png", "references").size() == 1);
    CHECK(fact("3.png", "full_prompt") ==
          "oils robot oils. Match the pose in image 1. Apply the style from image 2. Show robot as "
          "in image 3.");
    check_redo(folder / "1.png", folder);
    check_redo(folder / "3.png", folder, {"--ref-library", library.path().string()});
}

TEST_CASE("references are encoded once for the pictures of a run and for later runs") {
    const test::TemporaryFolder folder;
    Arguments cached = joined(test::small_picture(), {"--cache", (folder / "cache").string()});
    std::erase(cached, "--no-cache");
    const auto run = [&](const Arguments& more) {
        const auto result = test::flux2_program(
            joined(cached, joined({"-p", "x", "-r", picture(0), "-r", picture(1), "-o"}, more)));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        return result.out;
    };
    std::vector<int> n_cached;
    for (const std::string& line :
         test::lines_of(run({(folder / "%d.png").string(), "-b", "2", "-s", "1", "--json"}))) {
        const json event = json::parse(line);
        if (event["event"] == "picture") {
            n_cached.push_back(event["references_cached"].get<int>());
        }
    }
    CHECK(n_cached == std::vector<int>{0, 2});
    const std::string later = run({(folder / "later.png").string(), "-s", "1"});
    CHECK(has(later, ", references cached, denoise "));
    CHECK(load_image(folder / "later.png").rgb == load_image(folder / "1.png").rgb);
}

TEST_CASE("references that cannot be used are refused before the model is opened") {
    const test::TemporaryFolder library;
    fs::copy_file(picture(0), library / "robot.png");
    const auto refused = [&](const Arguments& arguments, int code, const std::string& words) {
        // There is no such model: what is said first is about the reference.
        const auto result = test::flux2_program(joined(
            {"--diffusion-model", "/no/such/model.gguf", "-o", (library / "out.png").string()},
            arguments));
        CAPTURE(result.err);
        CHECK(result.exit_code == code);
        CHECK(has(result.err, words));
    };
    refused({"-p", "x", "-r", "stile=" + picture(0)}, 2, "'stile' is no role; roles are style");
    refused({"-p", "x", "-r", "style=/no/such.png"}, 3, "/no/such.png");
    refused({"-p", "x", "--ref-resolution", "big"}, 2, "--ref-resolution");
    refused({"-p", "x", "--ref-library", "/no/such/folder"}, 3, "/no/such/folder: no such folder");
    refused({"-p", "@robto", "--ref-library", library.path().string()}, 2, "it has robot");
    test::write_file(library / "robot.json", std::string_view("{"));
    refused({"-p", "@robot", "--ref-library", library.path().string()}, 3, "robot.json");
}

TEST_CASE("an @ without a library stays in the prompt") {
    const test::TemporaryFolder folder;
    const auto result = draw({"-p", "@robot at home", "-o", (folder / "x.png").string()});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(read_picture_facts(folder / "x.png")["prompt"] == "@robot at home");
}

TEST_CASE("library lists elements with size, sentence and trigger words") {
    const test::TemporaryFolder library;
    fs::copy_file(picture(1), library / "robot.png");
    test::write_file(library / "robot.json",
                     std::string_view(R"({"trigger": ["r0b0t"], "description": "made of tin"})"));
    auto result = test::flux2_program({"library", library.path().string()});
    CHECK(result.exit_code == 0);
    CHECK(result.out ==
          "@robot  robot.png, 96x80\n  description: made of tin\n  trigger words: r0b0t\n"
          "  sentence: Show r0b0t as in image {}.\n");

    test::write_file(library / "broken.png", std::string_view("x"));
    fs::copy_file(picture(0), library / "lost.png");
    test::write_file(library / "lost.json", std::string_view(R"({"sentence": "{} @nobody"})"));
    test::write_file(library / "alone.json", std::string_view("{}"));
    result = test::flux2_program({"library", "--json", library.path().string()});
    CHECK(result.exit_code == 3);
    const json listed = json::parse(result.out);
    REQUIRE(listed["elements"].size() == 3);
    CHECK(listed["elements"][0]["name"] == "broken");
    CHECK(has(listed["elements"][0]["problem"], "broken.png"));
    CHECK(has(listed["elements"][1]["problem"], "there is no @nobody"));
    CHECK(listed["elements"][2]["problem"] == "");
    CHECK(listed["elements"][2]["width"] == 96);
    REQUIRE(listed["problems"].size() == 1);
    CHECK(has(test::flux2_program({"library", library.path().string()}).out,
              "problem: " + (library / "alone.json").string()));

    CHECK(test::flux2_program({"library"}).exit_code == 2);
    CHECK(test::flux2_program({"library", "/no/such"}).exit_code == 3);
    CHECK(test::flux2_program({"library", "--help"}).exit_code == 0);
}

TEST_CASE("plan takes roles, a library and smaller references") {
    const test::TemporaryFolder library;
    fs::copy_file(picture(0), library / "robot.png");
    const auto transformer_bytes = [&](const Arguments& more) {
        const auto result = test::flux2_program(joined(
            joined({"plan", "--json"}, test::small_picture()), joined({"--device", "CPU"}, more)));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        const json plan = json::parse(result.out);
        for (const json& stage : plan["stages"]) {
            if (stage["stage"] == "transformer") {
                return stage["host_compute"].get<uint64_t>();
            }
        }
        return uint64_t{0};
    };
    const Arguments large = {"-p", "x", "-r", "style=" + picture(1)};
    const uint64_t none = transformer_bytes({"-p", "x"});
    const uint64_t whole = transformer_bytes(large);
    CHECK(none < whole);
    CHECK(transformer_bytes(joined(large, {"--ref-resolution", "1024"})) < whole);
    CHECK(none < transformer_bytes({"-p", "@robot", "--ref-library", library.path().string()}));
}

TEST_CASE("references that make steps slower are told, with the option that helps") {
    const test::TemporaryFolder folder;
    const auto result = draw({"-p", "x", "-r", picture(1), "-r", picture(1), "-r", picture(1), "-b",
                              "2", "-v", "-o", (folder / "x.png").string()});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const std::string said = result.out + result.err;
    const std::string line = "3 references add 90 tokens to the picture's 16: a step takes about ";
    REQUIRE(has(said, line));
    CHECK(has(said, " times as long; --ref-resolution makes them smaller"));
    CHECK(said.find(line) == said.rfind(line));  // once for both pictures
}

}  // namespace
}  // namespace flux2::cli
