// LoRAs on the command line: what is said about a file, what a picture stores, what is refused.
#include "common/picture_facts.hpp"
#include "support/cli.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Arguments;
using test::has;
using test::joined;

test::ProgramResult draw(const Arguments& arguments) {
    return test::flux2_program(joined(test::small_picture(), arguments));
}

// The LoRAs that a picture stores: names and strengths.
std::string stored_loras(const fs::path& picture) {
    std::string text;
    const json facts = read_picture_facts(picture);
    for (const json& adapter : facts["adapters"]) {
        text += fs::path(adapter["file"].get<std::string>()).filename().string() + " " +
                adapter["strength"].dump() + ";";
    }
    return text;
}

TEST_CASE("info describes a LoRA file") {
    const test::TemporaryFolder folder;
    const fs::path lora = folder / "small.safetensors";
    test::write_small_lora(lora);
    const auto result = test::flux2_program({"info", lora.string()});
    CAPTURE(result.out);
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(has(result.out, "adapter: LoRA, rank 2\n  made for: "));
    CHECK(has(result.out, "1 module, transformer: 1 module of double blocks 0\n"));
    CHECK(has(result.out, "--lora " + lora.string()));
    const json listed =
        json::parse(test::flux2_program({"info", "--json", lora.string()}).out)["files"][0];
    CHECK(listed["part"] == "adapter");
    CHECK(listed["kinds"] == "LoRA");
    CHECK(listed["ranks"] == "2");
    CHECK(listed["format"] == "safetensors");
    CHECK(listed["modules"] == 1);
    CHECK(listed["unused"].empty());
}

TEST_CASE("info counts the modules of blocks and names keys that have no effect") {
    const test::TemporaryFolder folder;
    std::vector<test::TestTensor> tensors;
    const auto add_pair = [&](const std::string& module, int64_t n_out, int64_t n_in) {
        tensors.push_back(test::counting_tensor(module + ".lora_A.weight", {n_in, 2}));
        tensors.push_back(test::counting_tensor(module + ".lora_B.weight", {2, n_out}));
    };
    for (const char* block : {"0", "1", "3"}) {
        add_pair(std::string("diffusion_model.double_blocks.") + block + ".img_attn.proj", 128,
                 128);
        add_pair(std::string("diffusion_model.double_blocks.") + block + ".img_mlp.0", 768, 128);
    }
    add_pair("diffusion_model.single_blocks.2.linear1", 1152, 128);
    add_pair("diffusion_model.img_in", 128, 128);
    for (int i = 0; i < 8; ++i) {
        tensors.push_back(test::counting_tensor("nonsense." + std::to_string(i), {2}));
    }
    test::write_file(folder / "x.safetensors", test::safetensors_of(tensors));
    const auto result = test::flux2_program({"info", (folder / "x.safetensors").string()});
    CAPTURE(result.out);
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(has(result.out,
              "8 modules, transformer: 2 modules each of double blocks 0-1, 3, 1 module of single "
              "blocks 2, img_in\n"));
    CHECK(has(result.out, "not used: nonsense."));
    CHECK(has(result.out, "not used: 3 more keys"));
}

TEST_CASE("a picture stores its LoRAs, and redo uses them again") {
    const test::TemporaryFolder folder;
    const fs::path lora = folder / "small.safetensors";
    const std::string first = (folder / "first.png").string();
    const Arguments redo = {"redo", first, "--no-cache", "-o", (folder / "again.png").string()};
    test::write_small_lora(lora);
    auto result =
        draw({"-p", "x", "--lora", lora.string() + ":-0.5", "--lora-exclude", "mlp", "-o", first});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const json stored = read_picture_facts(first)["adapters"];
    REQUIRE(stored.size() == 1);
    CHECK(stored[0]["file"] == lora.string());
    CHECK(stored[0]["strength"] == -0.5);
    CHECK(stored[0]["exclude"] == "mlp");
    CHECK(stored[0]["sha256"].get<std::string>().size() == 64);

    result = test::flux2_program(redo);
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK_FALSE(has(result.err, "is not the one"));
    CHECK(read_picture_facts(folder / "again.png")["adapters"] == stored);
    CHECK(load_image(folder / "again.png").rgb == load_image(first).rgb);

    test::write_small_lora(lora, 0.04f);
    result = test::flux2_program(redo);
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "warning: the LoRA is not the one that made the stored picture"));

    fs::rename(lora, folder / "moved.safetensors");
    result = test::flux2_program(redo);
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "first.png: was made with the LoRA " + lora.string()));
    result = test::flux2_program(joined(redo, {"--lora", (folder / "moved.safetensors").string()}));
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK(stored_loras(folder / "again.png") == "moved.safetensors 1.0;");
}

TEST_CASE("tags of a prompt add LoRAs to it and leave its text") {
    const test::TemporaryFolder folder;
    const test::TemporaryFolder loras;
    test::write_small_lora(loras / "a.safetensors");
    test::write_small_lora(loras / "styles/b.safetensors", 0.03f);
    test::write_file(folder / "prompts",
                     std::string_view("one <lora:b:0.5>\ntwo\n<lora:a> three <lora:b:0.5>\n"));
    const auto result =
        draw({"--prompt-file", (folder / "prompts").string(), "--lora-dir", loras.path().string(),
              "--lora", (loras / "a.safetensors").string() + ":0.25", "-o",
              (folder / "%d.png").string()});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(stored_loras(folder / "1.png") == "a.safetensors 0.25;b.safetensors 0.5;");
    CHECK(stored_loras(folder / "2.png") == "a.safetensors 0.25;");
    CHECK(stored_loras(folder / "3.png") ==
          "a.safetensors 0.25;a.safetensors 1.0;b.safetensors 0.5;");
    CHECK(read_picture_facts(folder / "1.png")["prompt"] == "one");
    CHECK(read_picture_facts(folder / "3.png")["prompt"] == "three");
}

TEST_CASE("a tag in the negative prompt is left out with a warning") {
    const test::TemporaryFolder folder;
    const auto result =
        draw({"-p", "x", "-n", "dark <lora:a:1> night", "-o", (folder / "x.png").string()});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(has(result.err, "warning: the tag <lora:a> in the negative prompt has no effect"));
    CHECK(read_picture_facts(folder / "x.png")["negative_prompt"] == "dark night");
}

TEST_CASE("LoRAs that cannot be found are refused before the model is opened") {
    const test::TemporaryFolder folder;
    test::write_small_lora(folder / "small.safetensors");
    const auto refused = [&](const Arguments& arguments, int code, const std::string& words) {
        // There is no such model: what is said first is about the LoRA.
        const auto result = test::flux2_program(
            joined({"--diffusion-model", "/no/such/model.gguf", "-o", (folder / "x.png").string()},
                   arguments));
        CAPTURE(result.err);
        CHECK(result.exit_code == code);
        CHECK(has(result.err, words));
    };
    refused({"-p", "x", "--lora", "/no/such.safetensors:0.5"}, 3, "/no/such.safetensors: no such");
    refused({"-p", "x <lora:small:1>"}, 2, "add --lora-dir FOLDER");
    refused({"-p", "x <lora:smal:1>", "--lora-dir", folder.path().string()}, 2, "it has small");
    refused({"-p", "x <lora:../small:1>", "--lora-dir", folder.path().string()}, 2, "a path");
    refused({"-p", "x", "--lora-dir", "/no/such/folder"}, 3, "/no/such/folder: no such folder");
}

TEST_CASE("plan takes LoRAs, by option and by tag") {
    const test::TemporaryFolder folder;
    test::write_small_lora(folder / "small.safetensors");
    const auto result =
        test::flux2_program(joined(joined({"plan"}, test::small_picture()),
                                   {"-p", "x <lora:small:1>", "--lora-dir", folder.path().string(),
                                    "--lora", (folder / "small.safetensors").string()}));
    CHECK_MESSAGE(result.exit_code == 0, result.err);
}

}  // namespace
}  // namespace flux2::cli
