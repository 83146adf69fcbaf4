// Pictures through the program itself: the recorded runs of the reference from converted files, and
// what users rely on: same seed same bytes, batches, prompt files, cache, redo, previews.
#include <flux2/flux2.hpp>
#include "formats/tensor_source.hpp"
#include "image/image.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/small_mistral.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <sstream>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const std::string kFlux2 = test::flux2_path();

std::string klein(const std::string& file) {
    return test::fixture("klein/" + file).string();
}

double psnr(const Image& a, const Image& b) {
    REQUIRE(a.width == b.width);
    REQUIRE(a.height == b.height);
    double sum = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        const double d = static_cast<double>(a.rgb[i]) - static_cast<double>(b.rgb[i]);
        sum += d * d;
    }
    if (sum == 0) {
        return std::numeric_limits<double>::infinity();
    }
    return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / sum);
}

// Runs a command that must succeed.
test::ProgramResult run(const std::string& command) {
    const auto result = test::run_program(command);
    CAPTURE(command);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return result;
}

// The test models as users have them: converted by flux2-convert.
class ConvertedModel {
  public:
    ConvertedModel(const std::string& type, const std::string& variant) {
        convert(klein("flux2.safetensors"), "model.gguf", type, " --variant " + variant);
        convert(klein("vae.safetensors"), "vae.gguf", type, "");
    }

    // Draws a recorded run's picture and returns its distance from the recorded one.
    double psnr_of_run(const std::string& name, const std::string& options) const {
        const fs::path out = folder_ / "out.png";
        run(kFlux2 + " --no-cache -q -p recorded --device CPU --diffusion-model " +
            (folder_ / "model.gguf").string() + " --vae " + (folder_ / "vae.gguf").string() +
            " --noise " + klein(name + ".golden.safetensors") + " --embeds " +
            klein("text_encoder.golden.safetensors") + " -o " + out.string() + " " + options);
        return psnr(load_image(out), load_image(klein(name + ".png")));
    }

  private:
    void convert(const std::string& input, const char* output, const std::string& type,
                 const std::string& options) const {
        run(test::convert_path() + " " + input + " -o " + (folder_ / output).string() + " --type " +
            type + options);
    }

    test::TemporaryFolder folder_;
};

void check_recorded_runs(const std::string& type, double limit) {
    const ConvertedModel distilled(type, "klein");
    const std::string one = "-r " + klein("ref_0.png");
    const std::string two = one + " -r " + klein("ref_1.png");
    CHECK(distilled.psnr_of_run("pipeline_klein_t2i", "") >= limit);
    CHECK(distilled.psnr_of_run("pipeline_klein_edit1", one) >= limit);
    CHECK(distilled.psnr_of_run("pipeline_klein_edit2", two) >= limit);
    CHECK(ConvertedModel(type, "kv").psnr_of_run("pipeline_kv_edit2", two) >= limit);
    // Guidance 4 is the base model's own.
    CHECK(ConvertedModel(type, "base").psnr_of_run("pipeline_base_cfg", "--steps 6") >= limit);
}

TEST_CASE("the recorded pictures come out of the program in F32") {
    check_recorded_runs("F32", 55.0);
}

TEST_CASE("the recorded pictures come out of the program in Q8_0, nearly") {
    check_recorded_runs("Q8_0", 30.0);
}

TEST_CASE("references in another order make another picture") {
    const ConvertedModel model("F32", "klein");
    CHECK(model.psnr_of_run("pipeline_klein_edit2",
                            "-r " + klein("ref_1.png") + " -r " + klein("ref_0.png")) < 50.0);
}

// A transformer with a guidance input, as dev has it: the test model and two more matrices. Text
// features may have another width than the test model's; its weights for them are then repeated.
void write_dev_like(const fs::path& file, int64_t text_width = 192) {
    std::vector<test::TestTensor> tensors = test::tensors_of(klein("flux2.safetensors"));
    std::vector<test::TestTensor> added;
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "txt_in.weight") {
            const test::Bytes weights = tensor.data;
            tensor.data.resize(weights.size() / 192 * static_cast<size_t>(text_width));
            for (size_t i = 0; i < tensor.data.size(); ++i) {
                tensor.data[i] = weights[i % weights.size()];
            }
            tensor.shape[0] = text_width;
        }
        if (tensor.name.starts_with("time_in.")) {
            test::TestTensor copy = tensor;
            copy.name.replace(0, 4, "guidance");
            added.push_back(copy);
        }
    }
    REQUIRE(added.size() == 2);
    tensors.insert(tensors.end(), added.begin(), added.end());
    test::write_file(file, test::safetensors_of(tensors));
}

TEST_CASE("embedded guidance of a dev-like model changes the picture") {
    const test::TemporaryFolder folder;
    write_dev_like(folder / "flux2-dev.safetensors");
    run(test::convert_path() + " " + (folder / "flux2-dev.safetensors").string() + " -o " +
        (folder / "dev.gguf").string() + " --type F32");
    const auto draw = [&](const std::string& name, const std::string& options) {
        run(kFlux2 + " --no-cache -q -p x -s 1 --steps 2 -W 64 -H 64 --device CPU --embeds " +
            klein("text_encoder.golden.safetensors") + " --vae " + klein("vae.safetensors") +
            " --diffusion-model " + (folder / "dev.gguf").string() + " -o " +
            (folder / name).string() + " " + options);
        return load_image(folder / name);
    };
    const Image by_default = draw("a.png", "");
    CHECK(psnr(by_default, draw("b.png", "-g 4")) == std::numeric_limits<double>::infinity());
    CHECK(psnr(by_default, draw("c.png", "-g 1.5")) < 50.0);
    const auto info = run(kFlux2 + " info " + (folder / "dev.gguf").string());
    CHECK(info.out.find("variant dev") != std::string::npos);
    CHECK(info.out.find("50 steps, guidance 4") != std::string::npos);
}

TEST_CASE("dev reads prompts with Mistral, found in the same folder") {
    const test::TemporaryFolder folder;
    write_dev_like(folder / "flux2-dev.safetensors", 3 * test::SmallMistral::kHidden);
    test::SmallMistral().write_safetensors(folder / "mistral.safetensors", "language_model.");
    test::write_file(folder / "tokenizer.json", test::small_tekken_json());
    fs::copy_file(klein("vae.safetensors"), folder / "vae.safetensors");
    const std::string model = " -m " + folder.path().string();
    const auto draw = [&](const std::string& name, const std::string& prompt) {
        run(kFlux2 + " --no-cache -q -s 1 --steps 2 -W 64 -H 64 --device CPU -p '" + prompt +
            "' -o " + (folder / name).string() + model);
        return load_image(folder / name);
    };
    const Image car = draw("car.png", "a red car");
    CHECK(car.rgb == draw("again.png", "[IMG]a red car").rgb);
    CHECK(car.rgb != draw("cat.png", "a red cat").rgb);
    const auto plan = run(kFlux2 + " plan -W 64 -H 64 --device CPU" + model);
    CHECK(plan.out.find("text encoder") != std::string::npos);
    const auto info = run(kFlux2 + " info " + (folder / "mistral.safetensors").string());
    CHECK(info.out.find("text encoder: Mistral, hidden size 80") != std::string::npos);
    CHECK(info.out.find("text features 240 wide") != std::string::npos);
}

// The bundled model, small pictures, in a folder of its own.
class Bundled {
  public:
    test::ProgramResult draw(const std::string& options) const {
        return run(command() + " -W 64 -H 64 --cache cache " + options);
    }
    test::ProgramResult draw_without_cache(const std::string& options) const {
        return run(command() + " -W 64 -H 64 --no-cache " + options);
    }
    std::string command() const {
        return "cd " + folder_.path().string() + " && " + kFlux2 + " -m " + test::tiny_model() +
               " --device CPU --type F32";
    }
    test::Bytes bytes(const std::string& name) const { return test::read_file(folder_ / name); }
    fs::path path(const std::string& name) const { return folder_ / name; }
    std::vector<std::string> names() const { return folder_.names(); }

  private:
    test::TemporaryFolder folder_;
};

TEST_CASE("the same seed gives the same bytes, another seed other ones") {
    const Bundled model;
    model.draw_without_cache("-p 'a red house' -s 5 -o a.png");
    model.draw_without_cache("-p 'a red house' -s 5 -o b.png");
    model.draw_without_cache("-p 'a red house' -s 6 -o c.png");
    CHECK(model.bytes("a.png") == model.bytes("b.png"));
    CHECK(model.bytes("a.png") != model.bytes("c.png"));
}

TEST_CASE("a cached prompt needs no text encoder and changes nothing") {
    const Bundled model;
    const auto first = model.draw("-p 'a blue boat' -s 1 -o a.png --json");
    const auto second = model.draw("-p 'a blue boat' -s 1 -o b.png --json");
    CHECK(first.out.find("\"prompt_cached\":false") != std::string::npos);
    CHECK(second.out.find("\"prompt_cached\":true") != std::string::npos);
    CHECK(second.out.find("text encoder") == std::string::npos);
    CHECK(model.bytes("a.png") == model.bytes("b.png"));
    const auto other = model.draw("-p 'a blue ball' -s 1 -o c.png --json");
    CHECK(other.out.find("\"prompt_cached\":false") != std::string::npos);
}

TEST_CASE("a random seed is told and stored") {
    const Bundled model;
    const auto result = model.draw("-p 'a star' -o star.png");
    const size_t at = result.out.find("seed ");
    REQUIRE(at != std::string::npos);
    const std::string seed = std::to_string(std::stoull(result.out.substr(at + 5)));
    const auto info = run(kFlux2 + " info " + model.path("star.png").string());
    CHECK(info.out.find("Seed: " + seed) != std::string::npos);
}

TEST_CASE("batches and prompt files fill in names and keep the model loaded") {
    const Bundled model;
    model.draw("-p 'a tree' -W 64 -H 64 -s 7 -b 2 -o 'tree-{seed}.png' -q");
    CHECK(fs::exists(model.path("tree-7.png")));
    CHECK(fs::exists(model.path("tree-8.png")));
    test::write_file(model.path("prompts.txt"), "a red ball\n\na house\r\na boat\n");
    const auto result = model.draw("--prompt-file prompts.txt -W 64 -H 64 -s 7 -o '%03d.png'");
    for (const char* name : {"001.png", "002.png", "003.png"}) {
        CHECK(fs::exists(model.path(name)));
    }
    CHECK(!fs::exists(model.path("004.png")));
    // Every prompt is encoded before the first picture is begun.
    const size_t encoder = result.err.rfind("loading the text encoder");
    CHECK(encoder != std::string::npos);
    CHECK(encoder < result.err.find("loading the transformer"));
    // A picture of a batch is the picture of its seed.
    model.draw_without_cache("-p 'a tree' -W 64 -H 64 -s 8 -o alone.png -q");
    CHECK(psnr(load_image(model.path("alone.png")), load_image(model.path("tree-8.png"))) ==
          std::numeric_limits<double>::infinity());
}

TEST_CASE("a prompt file may be UTF-8 with a byte-order mark or UTF-16, with any line ends") {
    const Bundled model;
    model.draw("-p 'a b\xC3\xA4r' -W 64 -H 64 -s 7 -o plain.png -q");
    for (const std::string_view text : {std::string_view("\xEF\xBB\xBF"
                                                         "a b\xC3\xA4r\r\n"),
                                        std::string_view("\xFF\xFE"
                                                         "a\0 \0b\0\xE4\0r\0\r\0\n\0",
                                                         16),
                                        std::string_view("\xFE\xFF\0a\0 \0b\0\xE4\0r\0\n", 14)}) {
        test::write_file(model.path("prompts.txt"), text);
        model.draw("--prompt-file prompts.txt -W 64 -H 64 -s 7 -o read.png -q");
        CHECK(model.bytes("read.png") == model.bytes("plain.png"));
    }
}

TEST_CASE("redo makes the same picture again, or a changed one") {
    const Bundled model;
    model.draw("-p 'a \"red\" house, b\xC3\xA4r' -n night -s 3 --steps 2 -o first.png");
    const std::string redo = "cd " + model.path("").string() + " && " + kFlux2 +
                             " redo first.png --cache " + model.path("cache").string();
    run(redo + " -o again.png -q");
    CHECK(model.bytes("again.png") == model.bytes("first.png"));
    run(redo + " -s 4 -o other.png -q");
    CHECK(model.bytes("other.png") != model.bytes("first.png"));
    const auto info = run(kFlux2 + " info " + model.path("other.png").string());
    CHECK(info.out.find("b\xC3\xA4r") != std::string::npos);
    CHECK(info.out.find("Steps: 2") != std::string::npos);
    CHECK(info.out.find("Seed: 4") != std::string::npos);
}

TEST_CASE("a start picture is kept at a low strength and left at a high one") {
    const Bundled model;
    model.draw("-p 'a red house' -s 1 -W 128 -H 128 -o house.png");
    const auto from = [&](const std::string& strength) {
        model.draw("-p 'a red house' -s 2 -W 128 -H 128 -i house.png --steps 8 --strength " +
                   strength + " -o out.png -q");
        return psnr(load_image(model.path("out.png")), load_image(model.path("house.png")));
    };
    CHECK(from("0.2") > from("1") + 3);
}

TEST_CASE("the size follows a reference when none is given, and a preview is written") {
    const Bundled model;
    model.draw("-p 'a tree' -s 1 -W 96 -H 80 -o tree.png -q --fit");
    const auto result =
        run(model.command() +
            " --no-cache -p 'make it night' -r tree.png -o night.png --preview so-far.png");
    CHECK(result.out.find("night.png: 96x80") != std::string::npos);
    const Image preview = load_image(model.path("so-far.png"));
    CHECK(preview.width == 12);
    CHECK(preview.height == 10);
    // The last preview shows the finished picture, roughly.
    const Image small = resize_lanczos(load_image(model.path("night.png")), 12, 10);
    CHECK(psnr(preview, small) > 15.0);
}

TEST_CASE("numbers never replace a picture unless that is asked for") {
    const Bundled model;
    const std::string four = "-p 'a tree' -W 64 -H 64 -s 1 -b 2 --steps 1 -o 'out/%03d-{seed}.png'";
    CHECK(model.draw(four).err.find("numbered from") == std::string::npos);
    const test::Bytes first = model.bytes("out/001-1.png");
    const auto again = model.draw(four + " --json -p 'a house'");
    CHECK(again.out.find("pictures are numbered from 3 on") != std::string::npos);
    CHECK(model.bytes("out/001-1.png") == first);
    CHECK(fs::exists(model.path("out/003-1.png")));
    CHECK(fs::exists(model.path("out/004-2.png")));
    model.draw(four + " --overwrite -q -p 'a house'");
    CHECK(model.bytes("out/001-1.png") == model.bytes("out/003-1.png"));
    CHECK_FALSE(fs::exists(model.path("out/005-1.png")));
    // A plain name is replaced; of several pictures under one each gets a number.
    model.draw("-p 'a tree' -W 64 -H 64 -s 1 --steps 1 -q -o a.png");
    model.draw("-p 'a house' -W 64 -H 64 -s 1 --steps 1 -q -o a.png");
    CHECK(model.bytes("a.png") == model.bytes("out/003-1.png"));
    model.draw("-p 'a tree' -W 64 -H 64 -s 1 -b 2 --steps 1 -q -o a.png");
    model.draw("-p 'a tree' -W 64 -H 64 -s 1 -b 2 --steps 1 -q -o a.png");
    CHECK(model.names() == std::vector<std::string>{"a-001.png", "a-002.png", "a-003.png",
                                                    "a-004.png", "a.png", "cache", "out"});
}

TEST_CASE("programs that draw at the same time take different numbers") {
    const Bundled model;
    const std::string draw =
        model.command() + " -W 64 -H 64 --no-cache -p 'a tree' -b 3 --steps 1 -q -t 1 -o %d.png";
    run("(" + draw + ") & first=$!; (" + draw + ") & second=$!; wait $first && wait $second");
    CHECK(model.names() ==
          std::vector<std::string>{"1.png", "2.png", "3.png", "4.png", "5.png", "6.png"});
}

TEST_CASE("folders of pictures and previews are made") {
    const Bundled model;
    model.draw("-p 'a tree' -W 64 -H 64 -s 5 -q -o '{seed}/%d/a.png' --preview so/far.png");
    CHECK(load_image(model.path("5/1/a.png")).width == 64);
    CHECK(load_image(model.path("so/far.png")).width == 8);
}

TEST_CASE("a preview that cannot be written costs no picture") {
    if (!fs::exists("/dev/full")) {
        return;
    }
    const Bundled model;
    fs::create_symlink("/dev/full", model.path("full.png"));
    const auto result = model.draw("-p 'a tree' -s 5 -o a.png --preview full.png");
    CHECK(result.err.find("warning: the preview is not written: full.png") != std::string::npos);
    CHECK(load_image(model.path("a.png")).width == 64);
    CHECK(fs::is_character_file(model.path("full.png")));
}

TEST_CASE("pipes and devices take a picture and stay what they are") {
    const Bundled model;
    model.draw("-p 'a tree' -s 5 -q -o a.png");
    model.draw("-p 'a tree' -s 5 -q -o /dev/stdout | tee b.png");
    CHECK(model.bytes("b.png") == model.bytes("a.png"));
    const std::string pipe = model.path("pipe.png").string();
    run("mkfifo " + pipe + "; timeout 60 cat " + pipe + " > " + model.path("c.png").string() +
        " & " + model.command() +
        " -W 64 -H 64 --no-cache -p 'a tree' -s 5 -q -o pipe.png && wait");
    CHECK(fs::is_fifo(model.path("pipe.png")));
    model.draw("-p 'a tree' -s 5 -q -b 2 -o /dev/null");
    CHECK(fs::is_character_file("/dev/null"));
    CHECK(model.names() ==
          std::vector<std::string>{"a.png", "b.png", "c.png", "cache", "pipe.png"});
    CHECK(model.bytes("c.png") == model.bytes("a.png"));
}

TEST_CASE("events that do not arrive are an error, the picture is there") {
    if (!fs::exists("/dev/full")) {
        return;
    }
    const Bundled model;
    const auto result =
        test::run_program("{ " + model.command() +
                          " -W 64 -H 64 --no-cache -p 'a tree' --json -o a.png >/dev/full; }");
    CHECK(result.exit_code == 4);
    CHECK(result.err.find("standard output") != std::string::npos);
    CHECK(load_image(model.path("a.png")).width == 64);
}

TEST_CASE("settings without effect are warned about") {
    const Bundled model;
    const auto distilled = model.draw("-p 'a tree' -n clouds -g 3 -o a.png");
    CHECK(distilled.err.find("the negative prompt has no effect") != std::string::npos);
    CHECK(distilled.err.find("takes no guidance") != std::string::npos);
    const auto base =
        model.draw(std::string("-p 'a tree' --diffusion-model ") + test::tiny_model() +
                   "/flux2-tiny-bf16.gguf --variant base -n clouds -g 1 --steps 2 -o b.png");
    CHECK(base.err.find("no effect at guidance 1") != std::string::npos);
    const auto cut = model.draw("-p 'one two three red green blue' --text-length 8 -o c.png");
    CHECK(cut.err.find("this end of it is not used") != std::string::npos);
    CHECK(cut.err.find("blue") != std::string::npos);
}

TEST_CASE("own noise levels are the schedule's when they are the same") {
    const Bundled model;
    const auto result = model.draw("-p 'a tree' -s 1 -o a.png --json");
    nlohmann::json picture;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
        picture = nlohmann::json::parse(line);
    }
    REQUIRE(picture["event"] == "picture");
    std::string sigmas;
    for (const float sigma : picture["sigmas"].get<std::vector<float>>()) {
        std::ostringstream text;
        text << std::setprecision(9) << sigma;
        sigmas += (sigmas.empty() ? "" : ",") + text.str();
    }
    model.draw("-p 'a tree' -s 1 -o b.png -q --sigmas " + sigmas);
    CHECK(psnr(load_image(model.path("a.png")), load_image(model.path("b.png"))) ==
          std::numeric_limits<double>::infinity());
}

TEST_CASE("every generator of noise draws, each another picture") {
    const Bundled model;
    std::vector<test::Bytes> pictures;
    for (const std::string rng : {"cuda", "cuda-f32", "cpu", "cpu-f32"}) {
        model.draw("-p 'a tree' -s 1 -q -o out.bmp --rng " + rng);
        pictures.push_back(model.bytes("out.bmp"));
    }
    CHECK(pictures[0] != pictures[2]);
    CHECK(pictures[2] != pictures[3]);
    CHECK(pictures[0].size() == pictures[1].size());
}

}  // namespace
}  // namespace flux2
