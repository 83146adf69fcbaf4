// The public Qwen3 tokenizer.json, against ids recorded from Hugging Face's own implementation.
// ctest fetches the file first; where that was not possible these cases are skipped.
#include "support/folders.hpp"
#include "support/needs.hpp"
#include "support/support.hpp"
#include "text/chat.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using Ids = std::vector<int32_t>;

bool is_absent() {
    return !std::filesystem::exists(test::qwen3_tokenizer());
}

std::string text_of(const std::filesystem::path& file) {
    const test::Bytes bytes = test::read_file(file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const Tokenizer& qwen3_tokenizer() {
    static const Tokenizer tokenizer(
        read_tokenizer_json(text_of(test::qwen3_tokenizer()), "tokenizer.json"));
    return tokenizer;
}

TEST_CASE("the recorded strings get their ids" *
          test::needs(!is_absent(), "needs the public Qwen3 tokenizer, which npm fetches")) {
    const auto cases =
        nlohmann::json::parse(text_of(test::fixture("qwen3_tokenizer.json"))).at("cases");
    CHECK(cases.size() == 334);
    for (const nlohmann::json& c : cases) {
        const auto text = c.at("text").get<std::string>();
        CAPTURE(text);
        CHECK(qwen3_tokenizer().encode(text) == c.at("ids").get<Ids>());
    }
}

TEST_CASE("prompts get the ids of the reference" *
          test::needs(!is_absent(), "needs the public Qwen3 tokenizer, which npm fetches")) {
    const auto around = [](Ids middle) {
        middle.insert(middle.begin(), {151644, 872, 198});
        middle.insert(middle.end(), {151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271});
        return middle;
    };
    const std::vector<std::pair<std::string, Ids>> cases = {
        {"", around({})},
        {"a lovely cat", around({64, 16690, 8251})},
        {"A cat holding a sign that says hello world",
         around({32, 8251, 9963, 264, 1841, 429, 2727, 23811, 1879})},
        {"It's 2026, isn't it?\n\n  two spaces",
         around({2132, 594, 220, 17, 15, 17, 21, 11, 4436, 944, 432, 1939, 220, 1378, 12621})},
        {"\nleading newline",
         {151644, 872, 271, 20654, 39027, 151645, 198, 151644, 77091, 198, 151667, 271, 151668,
          271}},
    };
    for (auto [prompt, ids] : cases) {
        CAPTURE(prompt);
        const EncodedPrompt encoded = encode_prompt(qwen3_tokenizer(), prompt, 512);
        CHECK(encoded.n_real == static_cast<int64_t>(ids.size()));
        CHECK(encoded.n_cut == 0);
        ids.resize(512, 151643);
        CHECK(encoded.ids == ids);
    }
}

TEST_CASE("long prompts stay quick with a large vocabulary" *
          test::needs(!is_absent(), "needs the public Qwen3 tokenizer, which npm fetches")) {
    for (const std::string unit : {"a", "\u4e2d\u6587", "=", " ", "<|im_start|"}) {
        CAPTURE(unit);
        std::string text;
        while (text.size() < 100'000) {
            text += unit;
        }
        qwen3_tokenizer();
        const std::clock_t start = std::clock();
        const Ids ids = qwen3_tokenizer().encode(text);
        const std::clock_t end = std::clock();
        CHECK(qwen3_tokenizer().decode(ids) == text);
        // Measured: under 0.08 s, with sanitizers 0.3 s; quadratic merging takes minutes.
        CHECK(static_cast<double>(end - start) / CLOCKS_PER_SEC < 1.0);
    }
}

}  // namespace
}  // namespace flux2
