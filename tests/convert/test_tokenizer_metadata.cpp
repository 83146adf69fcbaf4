#include "base/split_patterns.hpp"
#include "support/support.hpp"
#include "text/vocabulary.hpp"
#include "tokenizer_metadata.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace flux2::convert {
namespace {

namespace fs = std::filesystem;

std::string tokenizer_json(const std::string& merges,
                           const std::string& split = std::string(kQwenSplit)) {
    return R"({"added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true},
                                {"id": 4, "content": "<|im_end|>", "special": true},
                                {"id": 5, "content": "<think>", "special": false}],
               "pre_tokenizer": {"pattern": {"Regex": )" +
           nlohmann::json(split).dump() + R"(}},
               "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": )" +
           merges + "}}";
}

Metadata convert_tokenizer(const std::filesystem::path& file, int64_t n_tokens,
                           const nlohmann::json& config = nlohmann::json::object()) {
    Metadata metadata;
    add_tokenizer(metadata, file, n_tokens, config);
    return metadata;
}

TEST_CASE("a tokenizer gets the keys llama.cpp reads") {
    const test::TemporaryFolder folder;
    for (const char* merges : {R"(["a b"])", R"([["a", "b"]])"}) {
        test::write_file(folder / "tokenizer.json", tokenizer_json(merges));
        const Metadata metadata = convert_tokenizer(folder / "tokenizer.json", 7);
        CHECK(metadata.get_string("tokenizer.ggml.model") == "gpt2");
        CHECK(metadata.get_string("tokenizer.ggml.pre") == "qwen2");
        CHECK(*metadata.get_strings("tokenizer.ggml.tokens") ==
              std::vector<std::string>{"a", "b", "ab", "<|endoftext|>", "<|im_end|>", "<think>",
                                       "[PAD6]"});
        // Normal, control, user-defined, unused.
        CHECK(metadata.get_ints("tokenizer.ggml.token_type") ==
              std::vector<int64_t>{1, 1, 1, 3, 3, 4, 5});
        CHECK(*metadata.get_strings("tokenizer.ggml.merges") == std::vector<std::string>{"a b"});
        CHECK(metadata.get_int("tokenizer.ggml.eos_token_id") == 4);
        CHECK(metadata.get_int("tokenizer.ggml.padding_token_id") == 3);
        CHECK(metadata.get_bool("tokenizer.ggml.add_bos_token") == false);
        CHECK_FALSE(metadata.contains("tokenizer.chat_template"));
    }
}

TEST_CASE("the companions of a tokenizer give special ids and the chat template") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "tokenizer.json", tokenizer_json("[]"));
    test::write_file(folder / "tokenizer_config.json",
                     R"({"eos_token": {"content": "<think>"}, "chat_template": "hello"})");
    const Metadata metadata =
        convert_tokenizer(folder / "tokenizer.json", 6, {{"bos_token_id", 1}});
    CHECK(metadata.get_int("tokenizer.ggml.eos_token_id") == 5);
    CHECK(metadata.get_int("tokenizer.ggml.bos_token_id") == 1);
    CHECK(metadata.get_string("tokenizer.chat_template") == "hello");
}

TEST_CASE("a real tokenizer of Qwen's kind converts") {
    const Metadata metadata = convert_tokenizer(test::fixture("tiny/tokenizer.json"), 768);
    CHECK(metadata.get_strings("tokenizer.ggml.tokens")->size() == 768);
    CHECK(metadata.get_strings("tokenizer.ggml.tokens")->at(744) == "<|endoftext|>");
    CHECK(metadata.get_int("tokenizer.ggml.padding_token_id") == 744);
    CHECK(metadata.get_int("tokenizer.ggml.eos_token_id") == 746);
    CHECK(metadata.contains("tokenizer.chat_template"));
}

TEST_CASE("a tokenizer that does not fit or is none is refused") {
    const test::TemporaryFolder folder;
    const auto error_with = [&](const std::string& text, int64_t n_tokens) {
        test::write_file(folder / "tokenizer.json", text);
        Metadata metadata;
        return test::error_of([&] {
            add_tokenizer(metadata, folder / "tokenizer.json", n_tokens, nlohmann::json::object());
        });
    };
    const auto too_large = error_with(tokenizer_json("[]"), 5);
    CHECK(too_large.kind == ErrorKind::bad_file);
    CHECK(too_large.mentions("<think>"));
    for (const char* broken : {"", "[]", "{", "{}", R"({"model": {"vocab": {"a": "x"}}})",
                               R"({"model": {"vocab": {}, "merges": [1]}})"}) {
        const auto error = error_with(broken, 10);
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("tokenizer.json"));
    }
    CHECK(error_with(R"({"model": {"type": "Unigram"}})", 5).kind == ErrorKind::unsupported);
}

TEST_CASE("converter and runtime take the same ways to split text, under the same names") {
    const test::TemporaryFolder folder;
    const fs::path file = folder / "tokenizer.json";
    // Qwen2.5's relatives that split numbers by threes begin as Qwen's own.
    std::string by_threes(kQwenSplit);
    by_threes.replace(by_threes.find(R"(|\p{N}|)"), 8, R"(|\p{N}{1,3}|)");
    const std::vector<std::pair<std::string, std::string>> cases = {
        {std::string(kQwenSplit), "qwen2"},
        {std::string(kTekkenSplit), "tekken"},
        {by_threes, ""},
        {"other", ""},
        {std::string(kQwenSplit) + "|x", ""}};
    for (const auto& [split, name] : cases) {
        CAPTURE(split);
        const std::string text = tokenizer_json("[]", split);
        test::write_file(file, text);
        Metadata metadata;
        const auto convert = [&] { add_tokenizer(metadata, file, 6, nlohmann::json::object()); };
        const auto open = [&] { return read_tokenizer_json(text, file.string()).split; };
        if (!name.empty()) {
            convert();
            CHECK(metadata.get_string("tokenizer.ggml.pre") == name);
            CHECK((open() == Split::tekken) == (name == "tekken"));
            continue;
        }
        const auto refused = test::error_of(convert);
        CHECK(refused.kind == ErrorKind::unsupported);
        CHECK(refused.mentions("does not split text as Qwen3 or Mistral does"));
        CHECK(test::error_of(open).message == refused.message);
    }
}

}  // namespace
}  // namespace flux2::convert
