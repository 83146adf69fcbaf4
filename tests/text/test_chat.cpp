#include "base/utf8.hpp"
#include "formats/sha256.hpp"
#include "support/small_mistral.hpp"
#include "support/support.hpp"
#include "text/chat.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
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

// ---- dev ----

const Tokenizer& small_tekken() {
    static const Tokenizer tokenizer(
        read_tokenizer_json(test::small_tekken_json(), "tokenizer.json"));
    return tokenizer;
}

std::string system_message() {
    const std::string chat = dev_chat("");
    const std::string before = "<s>[SYSTEM_PROMPT]";
    const std::string after = "[/SYSTEM_PROMPT][INST][/INST]";
    REQUIRE(chat.starts_with(before));
    REQUIRE(chat.ends_with(after));
    return chat.substr(before.size(), chat.size() - before.size() - after.size());
}

TEST_CASE("dev's system message is the reference's to the byte") {
    const std::atomic<bool> no_cancel = false;
    CHECK(system_message().size() == 168);
    CHECK(system_message().find('\n') == 123);
    CHECK(sha256(test::bytes_of(system_message()), no_cancel) ==
          "d43d93082f24034d9c7f4e5b65cdeceb1e082c64c9cf95dfae5be89c31e1320d");
}

TEST_CASE("the prompt goes into dev's template without announcing pictures") {
    const std::string before = "<s>[SYSTEM_PROMPT]" + system_message() + "[/SYSTEM_PROMPT][INST]";
    CHECK(dev_chat(" A Cat\n") == before + " A Cat\n[/INST]");
    CHECK(dev_chat("[IMG]a[IMG][IMG] b[IMG") == before + "a b[IMG[/INST]");
}

TEST_CASE("dev's prompts are padded on the left") {
    std::vector<int32_t> expected = {11, 11, 11, 1, 17};
    for (const char c : system_message()) {
        expected.push_back(test::kFirstByte + c);
    }
    // "ca" by its merge; " cat" is a token, whatever the merges say.
    for (const int32_t id : {18, 3, test::kCa, test::kFirstByte + 'r', test::kSpaceCat, 4}) {
        expected.push_back(id);
    }
    const EncodedPrompt encoded =
        encode_prompt(small_tekken(), "car cat", static_cast<int64_t>(expected.size()));
    CHECK(encoded.ids == expected);
    CHECK(encoded.n_real == static_cast<int64_t>(expected.size()) - 3);
    CHECK(encoded.n_cut == 0);
}

TEST_CASE("what does not fit dev's length is cut on the right") {
    const EncodedPrompt whole = encode_prompt(small_tekken(), "x yz", 300);
    CHECK(whole.ids[300 - static_cast<size_t>(whole.n_real)] == 1);
    const EncodedPrompt cut = encode_prompt(small_tekken(), "x yz", whole.n_real - 2);
    CHECK(std::equal(cut.ids.begin(), cut.ids.end(), whole.ids.end() - whole.n_real));
    CHECK(cut.n_real == whole.n_real - 2);
    CHECK(cut.n_cut == 2);
    CHECK(cut.cut_text == "z");
}

TEST_CASE("what is cut of a prompt is told from a whole letter on") {
    // Every letter is two to four tokens, so most lengths end inside one.
    const std::string prompt = "\u7ea2\u8272\u7684\u5c0f\u623f\u5b50 \u044f\U0001F332";
    for (const Tokenizer* tokenizer : {&small_tekken(), &tiny_tokenizer()}) {
        const int64_t n = encode_prompt(*tokenizer, prompt, 1000).n_real;
        size_t longest = 0;
        for (int64_t length = n; length > n / 2; --length) {
            const std::string cut = encode_prompt(*tokenizer, prompt, length).cut_text;
            CAPTURE(length);
            CHECK(is_utf8(cut));
            CHECK((cut.size() > prompt.size() || prompt.ends_with(cut)));
            CHECK(cut.size() >= longest);
            longest = cut.size();
        }
        CHECK(longest > 0);
    }
}

TEST_CASE("Tekken does not normalise") {
    // U+0065 U+0301 stays two characters, three bytes.
    CHECK(small_tekken().encode("e\u0301") == std::vector<int32_t>{test::kFirstByte + 'e',
                                                                   test::kFirstByte + 0xCC,
                                                                   test::kFirstByte + 0x81});
    CHECK(small_tekken().pad_id() == 11);
}

}  // namespace
}  // namespace flux2
