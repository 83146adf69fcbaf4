// The tokenizer of a converted file reads prompts as the recorded one does.
#include "convert.hpp"
#include "pipeline/prompt.hpp"
#include "support.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <fstream>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// The small text encoder with the embedding of the tiny tokenizer's 768 rows.
fs::path write_text_encoder(const test::TemporaryFolder& folder) {
    auto tensors = test::tensors_of(test::fixture("klein/text_encoder.safetensors"));
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "model.embed_tokens.weight") {
            tensor.shape[1] = 768;
            tensor.data.resize(768 * 64 * 2);
        }
    }
    test::write_file(folder / "te.safetensors", test::safetensors_of(tensors));
    return folder / "te.safetensors";
}

TEST_CASE("GGUF keys and tokenizer.json give the same tokenizer") {
    const test::TemporaryFolder folder;
    const fs::path original = write_text_encoder(folder);
    const Checkpoint checkpoint = Checkpoint::open(original);
    CHECK(test::error_of([&] { load_tokenizer(checkpoint); }).mentions("tokenizer.json"));
    fs::copy_file(test::fixture("tiny/tokenizer.json"), folder / "tokenizer.json");
    const Tokenizer from_json = load_tokenizer(checkpoint);

    convert::ConvertOptions options;
    options.types.file_type = &convert::parse_file_type("Q8_0");
    const std::atomic<bool> no_cancel = false;
    const fs::path converted = folder / "te.gguf";
    convert::write_plan(convert::make_plan(checkpoint, converted, options), 1, no_cancel,
                        [](uint64_t) {});
    const Checkpoint gguf = Checkpoint::open(converted);
    const Tokenizer from_gguf = load_tokenizer(gguf);

    std::ifstream file(test::fixture("tiny/prompts.json"));
    int n = 0;
    const nlohmann::json recordings = nlohmann::json::parse(file);
    for (const nlohmann::json& recorded : recordings.at("cases")) {
        const auto prompt = recorded.at("prompt").get<std::string>();
        const auto ids = recorded.at("ids").get<std::vector<int32_t>>();
        const auto length = static_cast<int64_t>(ids.size());
        CHECK(encode_prompt(from_json, prompt, length).ids == ids);
        CHECK(encode_prompt(from_gguf, prompt, length).ids == ids);
        ++n;
    }
    CHECK(n > 0);
}

TEST_CASE("a prompt becomes features of the right shape") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_text_encoder(folder));
    fs::copy_file(test::fixture("tiny/tokenizer.json"), folder / "tokenizer.json");
    const Backend backend("CPU");
    Qwen3 qwen3(backend, checkpoint, {});
    const PromptFeatures result =
        encode_prompt_features(load_tokenizer(checkpoint), qwen3, "a red house", 32);
    CHECK(result.features.ne == std::array<int64_t, 4>{192, 32, 1, 1});
    CHECK(result.encoded.n_cut == 0);
    CHECK(
        encode_prompt_features(load_tokenizer(checkpoint), qwen3, "a red house", 8).encoded.n_cut >
        0);
}

TEST_CASE("a converted file without tokenizer refuses prompts in words") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_text_encoder(folder));
    convert::ConvertOptions options;
    options.types.file_type = &convert::parse_file_type("Q8_0");
    const std::atomic<bool> no_cancel = false;
    convert::write_plan(convert::make_plan(checkpoint, folder / "x.gguf", options), 1, no_cancel,
                        [](uint64_t) {});
    const Checkpoint gguf = Checkpoint::open(folder / "x.gguf");
    const auto error = test::error_of([&] { load_tokenizer(gguf); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("--tokenizer"));
}

}  // namespace
}  // namespace flux2
