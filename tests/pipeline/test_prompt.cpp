// The tokenizer of a converted file reads prompts as the recorded one does.
#include "checkpoints/inventory.hpp"
#include "convert.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/prompt.hpp"
#include "support/small_mistral.hpp"
#include "support/support.hpp"

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
    TextEncoder encoder(backend, read_text_encoder_sizes(checkpoint), {}, checkpoint);
    const PromptFeatures result =
        encode_prompt_features(load_tokenizer(checkpoint), encoder, "a red house", 32);
    CHECK(result.features.ne == std::array<int64_t, 4>{192, 32, 1, 1});
    CHECK(result.encoded.n_cut == 0);
    CHECK(encode_prompt_features(load_tokenizer(checkpoint), encoder, "a red house", 8)
              .encoded.n_cut > 0);
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
    CHECK(error.mentions("flux2-convert `tokenizer` tokenizer.json"));
}

// ---- dev's Mistral ----

fs::path write_mistral(const test::TemporaryFolder& folder) {
    test::SmallMistral().write_safetensors(folder / "te.safetensors");
    return folder / "te.safetensors";
}

fs::path converted(const fs::path& from, const fs::path& to, bool trim = false) {
    convert::ConvertOptions options;
    options.types.file_type = &convert::parse_file_type("F32");
    options.text_encoder.trim = trim;
    const Checkpoint checkpoint = Checkpoint::open(from);
    const std::atomic<bool> no_cancel = false;
    convert::write_plan(convert::make_plan(checkpoint, to, options), 1, no_cancel, [](uint64_t) {});
    return to;
}

PromptFeatures features_of(const fs::path& file, const std::string& prompt) {
    const Backend backend("CPU");
    const Checkpoint checkpoint = Checkpoint::open(file);
    const TextConfig config = read_text_config(checkpoint);
    TextEncoder encoder(backend, read_text_encoder_sizes(checkpoint), text_encoder_facts(config),
                        checkpoint);
    return encode_prompt_features(load_tokenizer(checkpoint), encoder, prompt, 200);
}

TEST_CASE("Mistral gives the same features from safetensors and from the GGUF made of them") {
    const test::TemporaryFolder folder;
    const fs::path original = write_mistral(folder);
    test::write_file(folder / "tokenizer.json", test::small_tekken_json());
    const PromptFeatures from_original = features_of(original, "a red car");
    CHECK(from_original.features.ne == std::array<int64_t, 4>{240, 200, 1, 1});
    CHECK(from_original.encoded.ids.front() == 11);
    CHECK(from_original.encoded.ids.back() == 4);
    for (const bool trim : {false, true}) {
        const fs::path gguf = converted(original, folder / "te.gguf", trim);
        const PromptFeatures from_gguf = features_of(gguf, "a red car");
        CHECK(from_gguf.encoded.ids == from_original.encoded.ids);
        CHECK(from_gguf.features.data == from_original.features.data);
        // And from the GGUF made of that GGUF.
        const PromptFeatures again = features_of(converted(gguf, folder / "2.gguf"), "a red car");
        CHECK(again.features.data == from_original.features.data);
    }
}

TEST_CASE("Mistral becomes a file that llama.cpp reads as Llama") {
    const test::TemporaryFolder folder;
    const fs::path original = write_mistral(folder);
    test::write_file(folder / "tokenizer.json", test::small_tekken_json());
    const TensorSource gguf = TensorSource::open(converted(original, folder / "te.gguf"));
    const Metadata& keys = gguf.metadata();
    CHECK(keys.get_string("general.architecture") == "llama");
    CHECK(keys.get_int("llama.block_count") == 31);
    CHECK(keys.get_int("llama.embedding_length") == 80);
    CHECK(keys.get_int("llama.feed_forward_length") == 96);
    CHECK(keys.get_int("llama.attention.head_count") == 4);
    CHECK(keys.get_int("llama.attention.head_count_kv") == 2);
    CHECK(keys.get_int("llama.attention.key_length") == 16);
    CHECK(keys.get_int("llama.rope.dimension_count") == 16);
    CHECK(keys.get_float("llama.rope.freq_base") == 1e9);
    CHECK(keys.get_int("llama.vocab_size") == 320);
    CHECK(keys.get_string("tokenizer.ggml.pre") == "tekken");
    CHECK(keys.get_int("tokenizer.ggml.bos_token_id") == 1);
    CHECK(keys.get_int("tokenizer.ggml.eos_token_id") == 2);
    CHECK(keys.get_int("tokenizer.ggml.padding_token_id") == 11);
    CHECK(keys.get_bool("tokenizer.ggml.add_bos_token") == true);
    CHECK(keys.get_ints("flux2.text_layers") == std::vector<int64_t>{10, 20, 30});
    // Rows of queries and keys in the order llama.cpp's own converter gives them.
    const Checkpoint written = Checkpoint::open(folder / "te.gguf");
    for (const test::TestTensor& expected : test::SmallMistral().llama_tensors()) {
        const ModelTensor& tensor = written.get(expected.name);
        std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
        tensor.read_f32(0, values);
        CHECK_MESSAGE(test::bytes_of(values) == expected.data, expected.name);
    }
}

TEST_CASE("a GGUF of Mistral keeps its architecture") {
    const test::TemporaryFolder folder;
    test::SmallMistral().write_gguf(folder / "in.gguf", "mistral3");
    const TensorSource gguf =
        TensorSource::open(converted(folder / "in.gguf", folder / "out.gguf", /*trim=*/true));
    CHECK(gguf.metadata().get_string("general.architecture") == "mistral3");
    CHECK(gguf.metadata().get_int("mistral3.block_count") == 30);
    CHECK(gguf.metadata().get_int("mistral3.attention.key_length") == 16);
}

TEST_CASE("Mistral's file as ComfyUI has it brings its tokenizer") {
    const test::TemporaryFolder folder;
    auto tensors = test::SmallMistral().tensors();
    const test::Bytes tekken = test::bytes_of(test::small_tekken_file({"ab"}));
    tensors.push_back({.name = "tekken_model",
                       .shape = {static_cast<int64_t>(tekken.size())},
                       .data = tekken,
                       .type = TensorType::u8});
    test::write_file(folder / "te.safetensors", test::safetensors_of(tensors));
    test::write_file(folder / "config.json", R"({"head_dim": 16})");
    const Checkpoint checkpoint = Checkpoint::open(folder / "te.safetensors");
    CHECK(has_tokenizer(checkpoint));
    CHECK(load_tokenizer(checkpoint).encode("<s>ab") == std::vector<int32_t>{1, 20 + 256});
}

TEST_CASE("a tokenizer of the other family is refused") {
    const test::TemporaryFolder folder;
    const fs::path original = write_mistral(folder);
    const auto without = test::error_of([&] { load_tokenizer(Checkpoint::open(original)); });
    CHECK(without.kind == ErrorKind::bad_file);
    CHECK(without.mentions("black-forest-labs/FLUX.2-dev"));
    fs::copy_file(test::fixture("tiny/tokenizer.json"), folder / "tokenizer.json");
    const auto other = test::error_of([&] { load_tokenizer(Checkpoint::open(original)); });
    CHECK(other.kind == ErrorKind::bad_file);
    CHECK(other.mentions("is not the tokenizer of"));

    Metadata keys = test::small_mistral_keys("llama");
    keys.set("tokenizer.ggml.model", std::string("gpt2"));
    keys.set("tokenizer.ggml.pre", std::string("qwen2"));
    keys.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    keys.set("tokenizer.ggml.merges", std::vector<std::string>{"a a"});
    keys.set("tokenizer.ggml.token_type", std::vector<int32_t>{1});
    test::write_gguf(folder / "x.gguf", keys, test::SmallMistral().llama_tensors());
    const auto gguf = test::error_of([&] { load_tokenizer(Checkpoint::open(folder / "x.gguf")); });
    CHECK(gguf.kind == ErrorKind::unsupported);
    CHECK(gguf.mentions("gpt2/qwen2, expected gpt2/tekken"));
}

}  // namespace
}  // namespace flux2
