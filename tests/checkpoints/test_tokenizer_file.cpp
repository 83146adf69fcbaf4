// The pair vocab.json and merges.txt says what the tokenizer.json of the same data says.
#include "checkpoints/tokenizer_file.hpp"
#include "support/support.hpp"
#include "text/chat.hpp"
#include "tokenizer_metadata.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kWhole = test::fixture("tiny/tokenizer.json");

json read(const fs::path& file) {
    std::ifstream in(file);
    return json::parse(in);
}

json special_tokens() {
    return read(kWhole).at("added_tokens");
}

// The fixture's vocabulary as a pair, without the special tokens.
void write_pair(const fs::path& folder, const std::string& line_end = "\n") {
    const json model = read(kWhole).at("model");
    json vocabulary = model.at("vocab");
    for (const json& token : special_tokens()) {
        vocabulary.erase(token.at("content").get<std::string>());
    }
    std::string merges = "#version: 0.2" + line_end;
    for (const json& merge : model.at("merges")) {
        merges += merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>() + line_end;
    }
    fs::create_directories(folder);
    test::write_file(folder / "vocab.json", vocabulary.dump());
    test::write_file(folder / "merges.txt", merges);
}

void write_config(const fs::path& folder) {
    json config;
    for (const json& token : special_tokens()) {
        config["added_tokens_decoder"][std::to_string(token.at("id").get<int>())] = {
            {"content", token.at("content")}, {"special", token.at("special")}};
    }
    test::write_file(folder / "tokenizer_config.json", config.dump());
}

void write_added_tokens(const fs::path& folder) {
    json ids;
    for (const json& token : special_tokens()) {
        ids[token.at("content").get<std::string>()] = token.at("id");
    }
    test::write_file(folder / "added_tokens.json", ids.dump());
}

// The recorded ids of the tiny model's prompts.
void check_prompts(const Tokenizer& tokenizer) {
    const json cases = read(test::fixture("tiny/prompts.json")).at("cases");
    REQUIRE(!cases.empty());
    for (const json& recorded : cases) {
        const auto ids = recorded.at("ids").get<std::vector<int32_t>>();
        CHECK(encode_prompt(tokenizer, recorded.at("prompt").get<std::string>(),
                            static_cast<int64_t>(ids.size()))
                  .ids == ids);
    }
}

Tokenizer tokenizer_of(const fs::path& file) {
    return Tokenizer(vocabulary_of(read_tokenizer_file(file), file.string()));
}

TEST_CASE("the pair gives the ids of the tokenizer.json made of the same data") {
    for (const char* line_end : {"\n", "\r\n"}) {
        for (const auto write_special : {write_config, write_added_tokens}) {
            const test::TemporaryFolder folder;
            write_pair(folder.path(), line_end);
            write_special(folder.path());
            check_prompts(tokenizer_of(folder / "vocab.json"));
        }
    }
    check_prompts(tokenizer_of(kWhole));
}

TEST_CASE("the pair becomes the keys that the tokenizer.json becomes") {
    const test::TemporaryFolder folder;
    write_pair(folder.path());
    write_config(folder.path());
    Metadata from_pair, from_whole;
    convert::add_tokenizer(from_pair, folder / "vocab.json", 768, json::object());
    convert::add_tokenizer(from_whole, kWhole, 768, json::object());
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
        CHECK(*from_pair.get_strings(key) == *from_whole.get_strings(key));
    }
    CHECK(from_pair.get_ints("tokenizer.ggml.token_type") ==
          from_whole.get_ints("tokenizer.ggml.token_type"));
    CHECK(from_pair.get_string("tokenizer.ggml.pre") == "qwen2");
    CHECK(from_pair.get_int("tokenizer.ggml.padding_token_id") == 744);
}

TEST_CASE("a tokenizer is found beside a checkpoint or in ../tokenizer, tokenizer.json first") {
    const test::TemporaryFolder folder;
    fs::create_directories(folder / "text_encoder");
    const fs::path checkpoint = folder / "text_encoder/model.safetensors";
    CHECK(find_tokenizer_beside(checkpoint).empty());
    write_pair(folder / "tokenizer");
    fs::remove(folder / "tokenizer/merges.txt");
    CHECK(find_tokenizer_beside(checkpoint).empty());  // half a pair is none
    write_pair(folder / "tokenizer");
    CHECK(fs::equivalent(find_tokenizer_beside(checkpoint), folder / "tokenizer/vocab.json"));
    CHECK(fs::equivalent(find_tokenizer_beside(folder / "text_encoder"),
                         folder / "tokenizer/vocab.json"));
    fs::copy_file(kWhole, folder / "tokenizer/tokenizer.json");
    CHECK(find_tokenizer_beside(checkpoint).filename() == "tokenizer.json");
    write_pair(folder / "text_encoder");
    CHECK(find_tokenizer_beside(checkpoint) == folder / "text_encoder/vocab.json");
}

TEST_CASE("a pair without the names of special tokens, or broken, is refused") {
    const test::TemporaryFolder folder;
    write_pair(folder.path());
    const auto refused = [&] {
        return test::error_of([&] { tokenizer_of(folder / "vocab.json"); });
    };
    CHECK(refused().kind == ErrorKind::bad_file);
    CHECK(refused().mentions("put tokenizer_config.json"));
    for (const char* config : {R"({"added_tokens_decoder": {"x": {"content": "<s>"}}})",
                               R"({"added_tokens_decoder": {"744": 1}})",
                               R"({"added_tokens_decoder": {"744": {"content": 1}}})"}) {
        test::write_file(folder / "tokenizer_config.json", config);
        CHECK(refused().kind == ErrorKind::bad_file);
        CHECK(refused().mentions("tokenizer_config.json"));
    }
    write_config(folder.path());
    test::write_file(folder / "merges.txt", "#version: 0.2\nnospace\n");
    CHECK(refused().mentions("nospace"));
    fs::remove(folder / "merges.txt");
    CHECK(refused().mentions("merges.txt"));
}

}  // namespace
}  // namespace flux2
