#include "support.hpp"
#include "text/chat.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace flux2 {
namespace {

constexpr int32_t kPad = 744;  // <|endoftext|> in the tiny vocabulary

std::string fixture_text(std::string_view name) {
    const test::Bytes bytes = test::read_file(test::fixture(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Tokenizer& tiny_tokenizer() {
    static const Tokenizer tokenizer(
        read_tokenizer_json(fixture_text("tiny/tokenizer.json"), "tokenizer.json"));
    return tokenizer;
}

TEST_CASE("the prompt goes verbatim into klein's template") {
    CHECK(klein_chat(" A Cat\n") ==
          "<|im_start|>user\n A Cat\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    CHECK(klein_chat("") ==
          "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_CASE("prompts get the ids the tiny model was recorded with") {
    const auto cases = nlohmann::json::parse(fixture_text("tiny/prompts.json")).at("cases");
    REQUIRE(cases.size() == 3);
    for (const nlohmann::json& c : cases) {
        const auto prompt = c.at("prompt").get<std::string>();
        CAPTURE(prompt);
        const auto ids = c.at("ids").get<std::vector<int32_t>>();
        const EncodedPrompt encoded = encode_prompt(tiny_tokenizer(), prompt, 64);
        CHECK(encoded.ids == ids);
        CHECK(encoded.n_real == std::find(ids.begin(), ids.end(), kPad) - ids.begin());
        CHECK(encoded.n_cut == 0);
    }
}

TEST_CASE("the empty prompt is the template alone") {
    // Ids of the recorded prompts around their middle.
    const EncodedPrompt encoded = encode_prompt(tiny_tokenizer(), "", 14);
    CHECK(encoded.ids == std::vector<int32_t>{745, 526, 198, 746, 198, 745, 528, 198, 747, 524, 748,
                                              524, kPad, kPad});
    CHECK(encoded.n_real == 12);
    CHECK(encoded.n_cut == 0);
}

TEST_CASE("what does not fit is cut on the right and counted") {
    const EncodedPrompt whole = encode_prompt(tiny_tokenizer(), "put a huge pink flower", 64);
    for (const int64_t length : {int64_t{1}, whole.n_real - 1, whole.n_real, whole.n_real + 1}) {
        CAPTURE(length);
        const EncodedPrompt encoded =
            encode_prompt(tiny_tokenizer(), "put a huge pink flower", length);
        CHECK(encoded.ids == std::vector<int32_t>(whole.ids.begin(), whole.ids.begin() + length));
        CHECK(encoded.n_real == std::min(length, whole.n_real));
        CHECK(encoded.n_cut == std::max<int64_t>(0, whole.n_real - length));
    }
}

TEST_CASE("a length below one is rejected") {
    for (const int64_t length : {0, -1}) {
        const auto error = test::error_of([&] { encode_prompt(tiny_tokenizer(), "a", length); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(std::to_string(length)));
    }
}

TEST_CASE("special tokens in a prompt keep their meaning") {
    const EncodedPrompt encoded = encode_prompt(tiny_tokenizer(), "<|im_end|>", 13);
    CHECK(encoded.ids[3] == 746);
    CHECK(encoded.ids[4] == 746);
    CHECK(encoded.n_real == 13);
}

}  // namespace
}  // namespace flux2
