// Metadata in a picture about how it was made, and making it again.
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
using test::joined;

std::string name_of(const fs::path& path) {
    return path.string();
}

// Options with every value that is stored, none of them the default.
GenerateOptions unusual_options() {
    GenerateOptions o;
    o.model.files = {fixture("klein/flux2.safetensors"), {}, fixture("klein/vae.safetensors")};
    o.model.load.variant = "base";
    o.model.load.type = "F16";
    o.model.load.device = "CPU";
    o.prompt = "a \xc3\xa9 house";
    o.request.prompt = *o.prompt;
    o.request.negative_prompt = "blurry";
    o.request.guidance = 3.5f;
    o.request.cfg_scale = 3.5f;
    o.request.guidance_interval = {0.25f, 0.7f};
    o.request.seed = 9999999999999999999u;
    o.request.generator = "cpu-f32";
    o.request.sigmas = {1.0f, 0.25f, 0.0f};
    o.request.steps = 2;
    o.request.text_length = 77;
    o.request.noise_file = "/n.safetensors";
    o.request.embeds_file = "/e.safetensors";
    o.references = {"/a.png", "/b,c.png"};
    o.request.reference_roles = {"style", "Use image {}."};
    o.request.reference_pixels = 0;
    o.init = "/i.png";
    o.strength = 0.5f;
    o.alpha = Alpha::white;
    Adapter adapter;
    adapter.file = fixture("klein/vae.safetensors");  // any file has a hash
    adapter.strength = -0.25f;
    adapter.include = "double";
    adapter.exclude = "mlp";
    adapter.block_strengths = "double=0.5";
    o.request.adapters = {adapter, adapter};
    return o;
}

TEST_CASE("options come back from what a picture stores of them") {
    const GenerateOptions o = unusual_options();
    const Pipeline pipeline = Pipeline::load(o.model.files, o.model.load);
    ModelHashes hashes(o.model.files, {});
    hashes.add(o.request.adapters[0].file);
    Result result;
    result.image = {64, 80, std::vector<uint8_t>(64 * 80 * 3)};
    result.seed = *o.request.seed;
    result.steps = 2;
    result.guidance = *o.request.guidance;
    result.sigmas = o.request.sigmas;
    const json facts = picture_facts(o, o.model.files, hashes, pipeline, o.request, result);

    const test::TemporaryFolder folder;
    save_image(folder / "x.png", result.image, picture_texts(facts));
    const GenerateOptions back =
        options_from_facts(read_picture_facts(folder / "x.png"), folder / "x.png");
    CHECK(back.model.files.transformer == o.model.files.transformer);
    CHECK(back.model.files.text_encoder.empty());
    CHECK(back.model.files.vae == o.model.files.vae);
    CHECK(back.model.load.variant == "base");
    CHECK(back.model.load.type == "F16");
    CHECK(back.model.load.device == "CPU");
    CHECK(back.prompt == o.prompt);
    CHECK(back.request.negative_prompt == "blurry");
    CHECK(back.request.width == 64);
    CHECK(back.request.height == 80);
    CHECK(back.request.guidance == 3.5f);
    CHECK(back.request.cfg_scale == 3.5f);
    CHECK(back.request.guidance_interval.from == 0.25f);
    CHECK(back.request.guidance_interval.until == 0.7f);
    CHECK(back.request.seed == 9999999999999999999u);
    CHECK(back.request.generator == "cpu-f32");
    CHECK(back.request.sigmas == o.request.sigmas);
    CHECK(back.request.steps == 2);
    CHECK(back.request.text_length == 77);
    CHECK(back.request.noise_file == "/n.safetensors");
    CHECK(back.request.embeds_file == "/e.safetensors");
    CHECK(back.references == o.references);
    CHECK(back.request.reference_roles == o.request.reference_roles);
    CHECK(back.request.reference_pixels == 0);
    CHECK(back.init == "/i.png");
    CHECK(back.strength == 0.5f);
    CHECK(back.alpha == Alpha::white);
    REQUIRE(back.request.adapters.size() == 2);
    const Adapter& adapter = back.request.adapters[1];
    CHECK(adapter.file == fixture("klein/vae.safetensors"));
    CHECK(adapter.strength == -0.25f);
    CHECK(adapter.include == "double");
    CHECK(adapter.exclude == "mlp");
    CHECK(adapter.block_strengths == "double=0.5");
    CHECK(back.stored_adapter_hashes.at(name_of(adapter.file)) == back.stored_hashes.at("vae"));
}

TEST_CASE("devices and types of parts and the shares of devices come back from a picture") {
    GenerateOptions o = unusual_options();
    const Pipeline pipeline = Pipeline::load(o.model.files, o.model.load);
    ModelHashes hashes(o.model.files, {});
    Result result;
    result.image = {64, 80, std::vector<uint8_t>(64 * 80 * 3)};
    o.request.adapters.clear();
    const auto stored = [&] {
        return options_from_facts(
                   picture_facts(o, o.model.files, hashes, pipeline, o.request, result), "x.png")
            .model.load;
    };
    CHECK(stored().split.empty());
    CHECK(stored().text_encoder.device.empty());

    o.model.load.device = "CUDA1";
    o.model.load.transformer = {"CUDA0,RPC0", "Q8_0"};
    o.model.load.vae = {"CPU", "F16"};
    o.model.load.split = "2,1";
    const LoadOptions load = stored();
    CHECK(load.transformer.device == "CUDA0,RPC0");
    CHECK(load.transformer.type == "Q8_0");
    CHECK(load.vae.device == "CPU");
    CHECK(load.vae.type == "F16");
    CHECK(load.split == "2,1");
    // The device of the picture is the transformer's, here that of the pipeline above.
    CHECK(load.device == "CPU");
    CHECK(load.text_encoder.device == "CUDA1");
    CHECK(load.text_encoder.type.empty());
}

TEST_CASE("pictures of versions without cfg_scale have their guidance alone") {
    const GenerateOptions o = options_from_facts(json{{"guidance", 4.0}}, "x.png");
    CHECK(o.request.guidance == 4.0f);
    CHECK(!o.request.cfg_scale);
    CHECK(o.request.guidance_interval.from == 0.0f);
    CHECK(o.request.guidance_interval.until == 1.0f);
    for (const char* broken : {R"({"guidance_interval": 7})", R"({"guidance_interval": [0]})",
                               R"({"guidance_interval": [0, 0.5, 1]})", R"({"cfg_scale": "4"})"}) {
        CAPTURE(broken);
        const auto error =
            test::error_of([&] { options_from_facts(json::parse(broken), "x.png"); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("x.png: its settings are broken"));
    }
}

TEST_CASE("the line for other programs has the scale of two passes, and dev's own guidance") {
    json facts = {{"version", "1.2"},
                  {"model",
                   {{"variant", "dev"},
                    {"transformer", {{"file", "/m/d.gguf"}, {"sha256", "0123456789abcdef"}}}}},
                  {"prompt", "a house"},
                  {"negative_prompt", ""},
                  {"steps", 4},
                  {"guidance", 3.5},
                  {"used_cfg_scale", 1.2f},
                  {"seed", 7},
                  {"width", 64},
                  {"height", 80},
                  {"init_img", ""}};
    const auto has = [&](const char* words) {
        return picture_texts(facts)[0].text.find(words) != std::string::npos;
    };
    CHECK(has("Sampler: Euler, CFG scale: 1.2, Distilled CFG Scale: 3.5, Seed: 7"));
    facts["model"]["variant"] = "klein";
    CHECK(has("Sampler: Euler, CFG scale: 1.2, Seed: 7"));
}

TEST_CASE("broken LoRAs in a picture's settings are refused") {
    for (const char* broken : {R"({"adapters": 7})", R"({"adapters": {"file": "x"}})",
                               R"({"adapters": ["x"]})", R"({"adapters": [{"file": 7}]})",
                               R"({"adapters": [{"file": "x", "strength": "strong"}]})",
                               R"({"adapters": [{"file": "x", "strength": 1e300}]})"}) {
        CAPTURE(broken);
        const auto error =
            test::error_of([&] { options_from_facts(json::parse(broken), "x.png"); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("x.png: its settings are broken"));
    }
}

TEST_CASE("broken roles in a picture's settings are refused, and old pictures have none") {
    for (const char* broken :
         {R"({"references": ["a"], "reference_roles": ["style", "pose"]})",
          R"({"references": ["a"], "reference_roles": "style"})",
          R"({"reference_roles": ["style"]})", R"({"reference_pixels": -1})"}) {
        CAPTURE(broken);
        const auto error =
            test::error_of([&] { options_from_facts(json::parse(broken), "x.png"); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("x.png: its settings are broken"));
    }
    const GenerateOptions old = options_from_facts(json{{"references", {"a", "b"}}}, "x.png");
    CHECK(old.request.reference_roles == std::vector<std::string>{"", ""});
    CHECK_FALSE(old.request.reference_pixels.has_value());
}

TEST_CASE("a LoRA that changed since the picture was made is told by its hash") {
    GenerateOptions o;
    o.stored_adapter_hashes = {{"/a.safetensors", "0123456789abcdef"}, {"/b.gguf", "1111"}};
    const auto adapter = [](const char* file, const char* hash) {
        return json{{"file", file}, {"sha256", hash}};
    };
    json facts;
    facts["adapters"] = {adapter("/a.safetensors", "fedcba9876543210"), adapter("/b.gguf", "1111"),
                         adapter("/new.gguf", "2222")};
    const std::vector<std::string> lines = other_model_files(o, facts);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0] ==
          "the LoRA is not the one that made the stored picture: SHA-256 0123456789 then, "
          "fedcba9876 now (/a.safetensors)");
}

TEST_CASE("other programs find their line in a picture") {
    const json facts = {
        {"version", "1.2"},
        {"model", {{"transformer", {{"file", "/m/k.gguf"}, {"sha256", "0123456789abcdef"}}}}},
        {"prompt", std::string("a\0b \xff", 5)},
        {"negative_prompt", "dark"},
        {"steps", 4},
        {"guidance", 1.0},
        {"seed", 7},
        {"width", 64},
        {"height", 80},
        {"init_img", "/i.png"},
        {"strength", 0.5}};
    const std::vector<ImageText> texts = picture_texts(facts);
    REQUIRE(texts.size() == 2);
    CHECK(texts[0].key == "parameters");
    CHECK(texts[0].text ==
          "a b \xef\xbf\xbd\nNegative prompt: dark\nSteps: 4, Sampler: Euler, CFG scale: 1, "
          "Seed: 7, Size: 64x80, Model hash: 0123456789, Model: k, Denoising strength: 0.5, "
          "Version: flux2 1.2");
    CHECK(texts[1].key == "flux2");
    CHECK(json::parse(texts[1].text)["prompt"] == std::string("a\0b \xef\xbf\xbd", 7));
}

TEST_CASE("other programs find a picture's LoRAs as tags and hashes") {
    const json facts = {
        {"version", "1.2"},
        {"model", {{"transformer", {{"file", "/m/k.gguf"}, {"sha256", "0123456789abcdef"}}}}},
        {"prompt", "a house"},
        {"negative_prompt", ""},
        {"steps", 4},
        {"guidance", 1.0},
        {"seed", 7},
        {"width", 64},
        {"height", 80},
        {"init_img", ""},
        {"adapters",
         {{{"file", "/l/blue.safetensors"}, {"sha256", "aaaaaaaaaabb"}, {"strength", 0.8f}},
          {{"file", "/l/ink.gguf"}, {"sha256", "bbbbbbbbbbcc"}, {"strength", -1.0f}}}}};
    CHECK(picture_texts(facts)[0].text ==
          "a house <lora:blue:0.8> <lora:ink:-1>\nSteps: 4, Sampler: Euler, CFG scale: 1, "
          "Seed: 7, Size: 64x80, Model hash: 0123456789, Model: k, Lora hashes: \"blue: "
          "aaaaaaaaaa, ink: bbbbbbbbbb\", Version: flux2 1.2");
}

struct Made {
    test::TemporaryFolder folder;
    Made() {
        const auto result = test::flux2_program(joined(
            test::small_picture(), {"-p", "x", "-s", "7", "-r", name_of(fixture("klein/ref_0.png")),
                                    "-o", name_of(folder / "first.png")}));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    }

    // Makes it again with changes, and returns the picture.
    Image again(const Arguments& changes) const {
        const std::string out = name_of(folder / "again.png");
        const auto result = test::flux2_program(
            joined({"redo", name_of(folder / "first.png"), "--no-cache", "-o", out}, changes));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        return load_image(out);
    }
};

TEST_CASE("redo makes the same picture, and another one for each change") {
    const Made made;
    const Image first = load_image(made.folder / "first.png");
    CHECK(made.again({}).rgb == first.rgb);
    CHECK(made.again({"-s", "8"}).rgb != first.rgb);
    CHECK(made.again({"-W", "80"}).width == 80);
    // Options replace the stored steps and size.
    CHECK(made.again({"--sigmas", "1,0.5,0"}).rgb != first.rgb);
    const Image reference = load_image(fixture("klein/ref_0.png"));
    const Image matched = made.again({"--match-ref", "1"});
    CHECK(matched.width == reference.width / 16 * 16);
    CHECK(matched.height == reference.height / 16 * 16);
}

TEST_CASE("redo repeats guidance by two passes, and either option changes it on a base model") {
    const test::TemporaryFolder folder;
    const auto run = [&](const Arguments& arguments, const char* name) {
        const auto result =
            test::flux2_program(joined(arguments, {"--no-cache", "-o", name_of(folder / name)}));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        return load_image(folder / name).rgb;
    };
    for (const std::string variant : {"klein", "base"}) {
        CAPTURE(variant);
        const auto first = run(
            joined(test::small_picture(), {"-p", "x", "-s", "7", "--steps", "2", "--variant",
                                           variant, "--cfg-scale", "3", "--cfg-interval", "0,0.5"}),
            "first.png");
        const Arguments redo = {"redo", name_of(folder / "first.png")};
        CHECK(run(redo, "again.png") == first);
        CHECK(run(joined(redo, {"--cfg-scale", "5"}), "scale.png") != first);
        CHECK(run(joined(redo, {"--cfg-interval", "0,1"}), "whole.png") != first);
        const bool is_base = variant == "base";
        CHECK((run(joined(redo, {"-g", "5"}), "guidance.png") != first) == is_base);
    }
}

TEST_CASE("a JPEG stores its settings too, for redo and info") {
    const test::TemporaryFolder folder;
    const std::string first = name_of(folder / "first.jpg");
    auto result = test::flux2_program(
        joined(test::small_picture(), {"-p", "a \xc3\xa9 house", "-s", "7", "-o", first}));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(read_picture_facts(first)["prompt"] == "a \xc3\xa9 house");
    const std::string again = name_of(folder / "again.jpg");
    result = test::flux2_program({"redo", first, "--no-cache", "-o", again});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(load_image(again).rgb == load_image(first).rgb);
    result = test::flux2_program({"info", first});
    CHECK(result.out.find("parameters: a \xc3\xa9 house\nSteps: 1, Sampler: Euler") !=
          std::string::npos);
    CHECK(result.out.find("flux2: {") != std::string::npos);
}

TEST_CASE("redo understands the settings that other programs store") {
    const test::TemporaryFolder folder;
    const auto expected = test::flux2_program(joined(
        test::small_picture(), {"-p", "x", "-s", "7", "-o", name_of(folder / "expected.png")}));
    REQUIRE_MESSAGE(expected.exit_code == 0, expected.err);
    const Image pixel{1, 1, {1, 2, 3}};
    const std::vector<ImageText> texts = {
        {"parameters",
         "x\nSteps: 1, Sampler: DPM++ 2M, CFG scale: 1, Seed: 7, Size: 64x64, Model: other, Clip "
         "skip: 2, Denoising strength: 0.4"}};
    std::vector<std::string> names = {"other.png", "other.jpg"};
    if (supports_webp()) {
        names.push_back("other.webp");
    }
    for (const std::string& name : names) {
        CAPTURE(name);
        save_image(folder / name, pixel, texts);
        const Arguments redo = {"redo", name_of(folder / name), "-o",
                                name_of(folder / "again.png")};
        auto result = test::flux2_program(redo);
        CHECK(result.exit_code == 3);
        CHECK(result.err.find("name no transformer file, only the model 'other'; add -m") !=
              std::string::npos);
        result = test::flux2_program(
            joined(joined(redo, test::klein_parts()),
                   {"--embeds", test::small_picture().at(test::klein_parts().size() + 1)}));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        CHECK(result.err.find("not repeated: Sampler: DPM++ 2M, Clip skip: 2, Denoising strength: "
                              "0.4 (without -i FILE)") != std::string::npos);
        CHECK(load_image(folder / "again.png").rgb == load_image(folder / "expected.png").rgb);
    }
}

TEST_CASE(
    "text features take the place of a prompt, and one that is given is said not to be used") {
    const test::TemporaryFolder folder;
    const auto draw = [&](const char* name, const Arguments& more) {
        return test::flux2_program(
            joined(joined(test::small_picture(), {"-s", "7", "-o", name_of(folder / name)}), more));
    };
    const auto without = draw("a.png", {});
    REQUIRE_MESSAGE(without.exit_code == 0, without.err);
    CHECK(without.err.find("not used") == std::string::npos);
    const auto with = draw("b.png", {"-p", "a red house"});
    REQUIRE_MESSAGE(with.exit_code == 0, with.err);
    CHECK(with.err.find("the prompt is not used: the text features of " + test::few_features()) !=
          std::string::npos);
    CHECK(load_image(folder / "a.png").rgb == load_image(folder / "b.png").rgb);
}

TEST_CASE("redo tells which model files are others than those that made the picture") {
    const Made made;
    const auto redo = [&](const Arguments& changes) {
        return test::flux2_program(joined({"redo", name_of(made.folder / "first.png"), "--no-cache",
                                           "-o", name_of(made.folder / "again.png")},
                                          changes));
    };
    CHECK(redo({}).err.find("is not the one") == std::string::npos);
    auto tensors = test::tensors_of(fixture("klein/vae.safetensors"));
    const fs::path other = made.folder / "vae.safetensors";
    test::write_file(other, test::safetensors_of(tensors, R"({"note": "the same values"})"));
    const auto result = redo({"--vae", name_of(other)});
    CHECK(result.exit_code == 0);
    const json then = read_picture_facts(made.folder / "first.png")["model"]["vae"];
    const json now = read_picture_facts(made.folder / "again.png")["model"]["vae"];
    CHECK(result.err.find("warning: the vae is not the one that made the stored picture: SHA-256 " +
                          then["sha256"].get<std::string>().substr(0, 10) + " then, " +
                          now["sha256"].get<std::string>().substr(0, 10) + " now") !=
          std::string::npos);
    CHECK(result.err.find("the transformer is not") == std::string::npos);
}

TEST_CASE("several prompts take the size of a reference") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "prompts", std::string_view("one\ntwo\n"));
    const auto result = test::flux2_program(
        joined(test::klein_parts(),
               {"--llm", name_of(test::write_reading_encoder(folder)), "--text-length", "16",
                "--steps", "1", "--prompt-file", name_of(folder / "prompts"), "-r",
                name_of(fixture("klein/ref_0.png")), "--match-ref", "1", "-o",
                name_of(folder / "%d.png")}));
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const Image reference = load_image(fixture("klein/ref_0.png"));
    for (const char* name : {"1.png", "2.png"}) {
        CHECK(load_image(folder / name).width == reference.width / 16 * 16);
    }
}

TEST_CASE("redo takes a folder of models over the stored files") {
    const Made made;
    const test::TemporaryFolder models;
    const auto result =
        test::flux2_program({"redo", name_of(made.folder / "first.png"), "--no-cache", "-m",
                             name_of(models.path()), "-o", name_of(made.folder / "again.png")});
    CHECK(result.exit_code == 3);
    CHECK(result.err.find("holds no part of FLUX.2") != std::string::npos);
}

TEST_CASE("several prompts with one seed each keep their picture") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "prompts", std::string_view("one\r\n\ntwo\nthree"));
    const auto result = test::flux2_program(
        joined(test::small_picture(), {"--prompt-file", name_of(folder / "prompts"), "-s", "7",
                                       "-o", name_of(folder / "{seed}.png")}));
    CHECK(result.exit_code == 0);
    CHECK(folder.names() == std::vector<std::string>{"7-002.png", "7-003.png", "7.png", "prompts"});
    CHECK(read_picture_facts(folder / "7.png")["prompt"] == "one");
    CHECK(read_picture_facts(folder / "7-003.png")["prompt"] == "three");
}

TEST_CASE("a comma in a file's name is part of it") {
    const test::TemporaryFolder folder;
    fs::copy_file(fixture("klein/ref_0.png"), folder / "a,b.png");
    const auto result = test::flux2_program(
        joined(test::small_picture(),
               {"-p", "x", "-r", name_of(folder / "a,b.png"), "-o", name_of(folder / "x.png")}));
    CHECK(result.exit_code == 0);
    CHECK(test::flux2_program({"info", name_of(folder / "a,b.png")}).exit_code == 0);
}

}  // namespace
}  // namespace flux2::cli
