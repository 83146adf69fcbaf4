// flux2 selftest --replay: recorded runs of the tiny model with the files that come with us, and
// what must fail when a setting, a picture or the model is another one.
#include "formats/tensor_source.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/support.hpp"
#include "verify/recording.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = test::tiny_model();
// The distilled model, part by part.
const std::string kParts = " --diffusion-model " + kTiny + "/flux2-tiny-bf16.gguf --llm " + kTiny +
                           "/text-encoder-bf16.gguf --vae " + kTiny + "/vae-bf16.gguf";

std::string recorded(const std::string& name) {
    return test::fixture("tiny/" + name).string();
}

test::ProgramResult replay(const std::string& arguments) {
    return test::run_program(test::flux2_path() + " selftest --replay " + arguments);
}

int count(const std::string& text, const std::string& word) {
    int n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        ++n;
    }
    return n;
}

// The line that compares this tensor; empty when there is none.
std::string line_of(const std::string& text, const std::string& tensor) {
    const size_t at = text.find(" " + tensor + " ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

bool failed(const test::ProgramResult& result, const std::string& tensor) {
    return line_of(result.out, tensor).ends_with("  FAIL");
}

std::vector<double> psnr_values(const std::string& text) {
    const std::string word = "PSNR ";
    std::vector<double> values;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        values.push_back(std::stod(text.substr(at + word.size())));
    }
    return values;
}

// A recording to be changed and written again. Its picture and references stay behind.
struct RecordingFile {
    explicit RecordingFile(const std::string& name) {
        const test::Bytes bytes = test::read_file(recorded(name));
        uint64_t size = 0;
        std::memcpy(&size, bytes.data(), sizeof(size));
        const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(size);
        header = nlohmann::json::parse(text, text + size);
        data.assign(bytes.begin() + static_cast<std::ptrdiff_t>(sizeof(size) + size), bytes.end());
    }

    void set(const char* key, const std::string& text) { header["__metadata__"][key] = text; }

    // Writes it under its name and replays it there with the distilled model.
    test::ProgramResult replay_in(const test::TemporaryFolder& folder, const std::string& name,
                                  const std::string& options = "") const {
        test::write_file(folder / name, test::safetensors(header.dump(), data));
        return replay((folder / name).string() + kParts + options);
    }

    nlohmann::json header;
    test::Bytes data;
};

TEST_CASE("the tiny model replays text to image and an edit as recorded") {
    const test::TemporaryFolder folder;
    const auto result =
        replay(recorded("golden-t2i.safetensors") + " " + recorded("golden-edit.safetensors") +
               " -m " + kTiny + " --dump " + (folder / "dump.safetensors").string());
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    CHECK(count(result.out, "limits of F32") == 2);
    // Ids, features or reference, noise levels, two steps and the picture of each.
    CHECK(count(result.out, "  ok\n") == 12);
    // Two steps of each, and the features of the edit.
    CHECK(count(result.out, "not recorded here") == 5);
    // 92 and 95 dB were measured: single values that lie beside a rounding boundary.
    const std::vector<double> psnr = psnr_values(result.out);
    REQUIRE(psnr.size() == 2);
    CHECK(psnr[0] >= 50);
    CHECK(psnr[1] >= 50);

    const TensorSource dump = TensorSource::open(folder / "dump.safetensors");
    const TensorInfo* latents = dump.find("golden-t2i/latents_0");
    REQUIRE(latents != nullptr);
    CHECK(latents->shape == Shape{128, 256, 1});
    CHECK(dump.find("golden-edit/reference_latents_0") != nullptr);
}

TEST_CASE("a replay can end after its first steps") {
    const std::string file = recorded("golden-t2i.safetensors") + " -m " + kTiny;
    const auto result = replay(file + " --steps 1");
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    // Ids, features, noise levels, one step; the last step and the picture are left out.
    CHECK(count(result.out, "  ok\n") == 4);
    CHECK(result.out.find("latents_0") != std::string::npos);
    CHECK(result.out.find("latents_3") == std::string::npos);
    CHECK(result.out.find("the first 1 of 4 steps") != std::string::npos);
    CHECK(psnr_values(result.out).empty());
    CHECK(replay(file + " --steps 0").exit_code == 2);
    CHECK(replay(file + " --steps many").exit_code == 2);
}

TEST_CASE("the base model replays guidance and a negative prompt from its Q6_K file") {
    const auto result = replay(recorded("golden-base.safetensors") + " -m " + kTiny);
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("flux2-tiny-base-q6_k.gguf") != std::string::npos);
    // Recorded with bf16 weights: their rounding to 6 bits alone gives 43.5 dB (docs/numerics.md).
    const std::vector<double> psnr = psnr_values(result.out);
    REQUIRE(psnr.size() == 1);
    CHECK(psnr[0] >= 40);
    // And it does matter: the distilled model in its place is far off.
    const auto other = replay(recorded("golden-base.safetensors") + kParts);
    CHECK(other.exit_code == 1);
    CHECK(failed(other, "latents_7"));
}

TEST_CASE("types that CPUs repack stay within their limits, with any number of threads") {
    for (const char* type : {"F16", "Q8_0", "Q6_K", "Q5_K", "Q4_0", "Q4_K", "Q3_K"}) {
        CAPTURE(std::string(type));
        const auto result = replay(recorded("golden-t2i.safetensors") + " -m " + kTiny +
                                   " --threads 1 --type " + type);
        CAPTURE(result.out);
        CHECK(result.exit_code == 0);
        CHECK(count(result.out, "  ok\n") == 6);
    }
}

TEST_CASE("another schedule fails") {
    const test::TemporaryFolder folder;
    RecordingFile linear("golden-t2i.safetensors");
    const std::vector<float> sigmas = {1.0f, 0.75f, 0.5f, 0.25f, 0.0f};
    const size_t at = linear.header["sigmas"]["data_offsets"][0];
    std::memcpy(linear.data.data() + at, sigmas.data(), sigmas.size() * sizeof(float));
    auto result = linear.replay_in(folder, "linear.safetensors");
    CHECK(result.exit_code == 1);
    CHECK(failed(result, "sigmas"));
    CHECK(count(result.out, "FAIL") == 1);
    CHECK(result.out.find("linear/image: not recorded here") != std::string::npos);

    RecordingFile shorter("golden-t2i.safetensors");
    shorter.set("steps", "3");
    result = shorter.replay_in(folder, "shorter.safetensors");
    CHECK(result.exit_code == 1);
    for (const char* tensor : {"sigmas", "latents_0", "latents_3"}) {
        CAPTURE(std::string(tensor));
        CHECK(failed(result, tensor));
    }
}

TEST_CASE("another reference fails, and so does a missing one") {
    const test::TemporaryFolder folder;
    const RecordingFile same("golden-edit.safetensors");
    fs::copy(recorded("golden-t2i.png"), folder / "reference-0.png");
    auto result = same.replay_in(folder, "swapped.safetensors");
    CHECK(result.exit_code == 1);
    CHECK(failed(result, "reference_latents_0"));
    CHECK(failed(result, "latents_0"));
    CHECK(failed(result, "latents_3"));

    RecordingFile without("golden-edit.safetensors");
    without.set("references", "[]");
    result = without.replay_in(folder, "without.safetensors");
    CHECK(result.exit_code == 1);
    CHECK(failed(result, "reference_latents_0"));
    CHECK(failed(result, "latents_0"));

    RecordingFile other_prompt("golden-t2i.safetensors");
    other_prompt.set("prompt", "\"a tree\"");
    result = other_prompt.replay_in(folder, "prompt.safetensors");
    CHECK(result.exit_code == 1);
    CHECK(failed(result, "token_ids"));
    CHECK(failed(result, "prompt_embeds"));
}

TEST_CASE("another prompt fails in types of few bits too") {
    for (const std::string type : {"Q6_K", "Q4_0", "Q4_K", "Q3_K"}) {
        CAPTURE(type);
        const test::TemporaryFolder folder;
        fs::copy(recorded("golden-t2i.png"), folder / "prompt.png");
        RecordingFile other_prompt("golden-t2i.safetensors");
        other_prompt.set("prompt", "\"a big yellow boat in the middle, at sunset, on the sea\"");
        const auto result = other_prompt.replay_in(folder, "prompt.safetensors", " --type " + type);
        CAPTURE(result.out);
        CHECK(result.exit_code == 1);
        CHECK(result.out.find("limits of " + type) != std::string::npos);
        for (const char* tensor : {"prompt_embeds", "latents_0", "latents_3", "picture"}) {
            CAPTURE(std::string(tensor));
            CHECK(failed(result, tensor));
        }
    }
}

TEST_CASE("a broken recording is refused in a sentence") {
    const test::TemporaryFolder folder;
    const auto refused = [&](const char* key, const std::string& text, const std::string& words) {
        RecordingFile file("golden-t2i.safetensors");
        file.set(key, text);
        const auto result = file.replay_in(folder, "changed.safetensors");
        CAPTURE(result.err);
        CHECK(result.exit_code == 3);
        CHECK(result.err.find("changed.safetensors: ") != std::string::npos);
        CHECK(result.err.find(words) != std::string::npos);
    };
    refused("steps", "four", "steps is no JSON");
    refused("steps", "null", "steps is missing");
    refused("steps", "\"4\"", "steps has an unexpected value");
    refused("steps", "1e300", "expected a whole number");
    refused("steps", "0", "steps are out of range");
    refused("width", "250", "no multiple of 16");
    refused("height", "512", "noise has 256 tokens");
    refused("guidance", "-1", "guidance of -1 is out of range");
    refused("references", "\"x.png\"", "no list");
    refused("references", "[\"../x.png\"]", "not the name of a file beside it");
    refused("references", "[7]", "not the name of a file beside it");

    refused("lora", "{}", "lora is no list");
    refused("lora", "[\"x.safetensors\"]", "expected a file name and a strength");
    refused("lora", "[[\"x.safetensors\"]]", "expected a file name and a strength");
    refused("lora", "[[\"x.safetensors\", \"1\"]]", "expected a file name and a strength");
    refused("lora", "[[\"x.safetensors\", 1e300]]", "expected a file name and a strength");
    refused("lora", "[[\"/x.safetensors\", 1]]", "expected one relative to the recording");
    refused("lora", "[[\"\", 1]]", "expected one relative to the recording");
    refused("lora", "[[\"../absent.safetensors\", 1]]", "there is no such file");

    RecordingFile file("golden-t2i.safetensors");
    file.set("references", "[\"absent.png\"]");
    CHECK(file.replay_in(folder, "absent.safetensors").exit_code == 3);
    RecordingFile silent("golden-t2i.safetensors");
    silent.header.erase("noise");
    const auto result = silent.replay_in(folder, "silent.safetensors");
    CHECK(result.exit_code == 3);
    CHECK(result.err.find("tensor noise is missing") != std::string::npos);
    test::Bytes bytes = test::read_file(recorded("golden-t2i.safetensors"));
    bytes.resize(bytes.size() / 2);
    test::write_file(folder / "half.safetensors", bytes);
    CHECK(replay((folder / "half.safetensors").string() + kParts).exit_code == 3);
    CHECK(replay("/no/such/file.safetensors" + kParts).exit_code == 3);
}

TEST_CASE("a model that does not fit the recording is refused") {
    const std::string klein = test::fixture("klein").string();
    auto result = replay(recorded("golden-t2i.safetensors") + " -m " + klein);
    CHECK(result.exit_code == 3);
    // Recorded: 3 layers of 256. The other model takes 3 layers of 64.
    CHECK(result.err.find("text features 768 wide") != std::string::npos);
    CHECK(result.err.find("takes 192") != std::string::npos);
}

TEST_CASE("options of a replay that contradict each other exit with 2") {
    const std::string file = recorded("golden-t2i.safetensors");
    CHECK(replay(file + " --golden " + test::fixture("klein").string() + kParts).exit_code == 2);
    CHECK(replay(file + " " + file + kParts).exit_code == 2);
    CHECK(replay(file + kParts + " --type Q99").exit_code == 2);
    CHECK(replay(file + kParts + " --lora ''").exit_code == 2);
    CHECK(test::run_program(test::flux2_path() + " selftest --lora x").exit_code == 2);
    CHECK(test::run_program(test::flux2_path() + " selftest -m " + kTiny).exit_code == 2);
}

TEST_CASE("the PSNR is that of pictures rounded to 8 bits") {
    const std::vector<float> a = {0.0f, 0.2f, 0.6f, 1.0f};
    CHECK(cli::psnr_8_bit(a, {0.0f, 0.2001f, 0.5999f, 1.0f}) ==
          std::numeric_limits<double>::infinity());
    // One value of four is off by one: 10 log10(255^2 * 4).
    CHECK(cli::psnr_8_bit(a, {1.0f / 255, 0.2f, 0.6f, 1.0f}) == doctest::Approx(54.1514));
    CHECK(cli::psnr_8_bit({1.0f}, {0.0f}) == doctest::Approx(0.0));
    CHECK(cli::psnr_8_bit({std::nanf("")}, {0.0f}) == -std::numeric_limits<double>::infinity());
}

TEST_CASE("values of another number fail a comparison") {
    std::ostringstream lines;
    cli::Report report(lines);
    report.compare_values("a", "b", HostTensor({3, 1, 1, 1}), HostTensor({2, 1, 1, 1}), 1);
    CHECK(report.n_failed() == 1);
    CHECK(lines.str().find("3 values, 2 were expected") != std::string::npos);
}

TEST_CASE("recorded ids that no integer holds are refused") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "ids.safetensors",
                     test::safetensors_of({test::counting_tensor("good", {2}, 151000),
                                           test::counting_tensor("huge", {1}, 1e30f),
                                           test::counting_tensor("none", {1}, std::nanf(""))}));
    const cli::Recording recording(folder / "ids.safetensors");
    CHECK(recording.get_ints("good") == std::vector<int32_t>{151000, 151001});
    for (const char* name : {"huge", "none"}) {
        const auto error = test::error_of([&] { recording.get_ints(name); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions(name));
    }
}

}  // namespace
}  // namespace flux2
