#include "support/support.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using Ids = std::vector<int32_t>;

// The symbol of a byte, by the rule GPT-2 states: printable bytes are themselves, the others count
// up from U+0100.
std::string symbol(int byte) {
    const auto printable = [](int b) {
        return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    };
    int n_before = 0;
    for (int b = 0; b < byte; ++b) {
        n_before += printable(b) ? 0 : 1;
    }
    return to_utf8(
        std::u32string(1, static_cast<char32_t>(printable(byte) ? byte : 0x100 + n_before)));
}

// Ids 0 to 255 are the bytes, then come the results of the merges from 256 on, then the special
// tokens.
Vocabulary small_vocabulary(const std::vector<std::string>& merges,
                            const std::vector<std::string>& special = {}) {
    Vocabulary vocabulary;
    vocabulary.file = "small.gguf";
    for (int byte = 0; byte < 256; ++byte) {
        vocabulary.tokens.push_back(symbol(byte));
    }
    for (std::string merge : merges) {
        vocabulary.merges.push_back(merge);
        merge.erase(merge.find(' '), 1);
        vocabulary.tokens.push_back(merge);
    }
    for (const std::string& token : special) {
        vocabulary.special.push_back(static_cast<int32_t>(vocabulary.tokens.size()));
        vocabulary.tokens.push_back(token);
    }
    return vocabulary;
}

Ids bytes_as_ids(std::string_view text) {
    Ids ids;
    for (const char c : text) {
        ids.push_back(static_cast<uint8_t>(c));
    }
    return ids;
}

Tokenizer tiny_tokenizer() {
    const test::Bytes bytes = test::read_file(test::fixture("tiny/tokenizer.json"));
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Tokenizer(read_tokenizer_json(text, "tokenizer.json"));
}

// Of the processor, so that a busy machine does not fail the test.
double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
    const std::clock_t start = std::clock();
    const Ids ids = tokenizer.encode(text);
    const std::clock_t end = std::clock();
    CHECK_FALSE(ids.empty());
    return static_cast<double>(end - start) / CLOCKS_PER_SEC;
}

std::string repeated(std::string_view text, size_t n_bytes) {
    std::string result;
    while (result.size() < n_bytes) {
        result += text;
    }
    return result;
}

TEST_CASE("without merges every byte is a token") {
    const Tokenizer tokenizer(small_vocabulary({}));
    std::string all;
    for (int byte = 0; byte < 128; ++byte) {
        all.push_back(static_cast<char>(byte));
    }
    CHECK(tokenizer.encode(all) == bytes_as_ids(all));
    CHECK(tokenizer.encode("\u4e2d\U0001F600") == bytes_as_ids("\u4e2d\U0001F600"));
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.find("\u0120") == ' ');  // GPT-2's well-known sign for the space
    CHECK(tokenizer.find("\u010A") == '\n');
}

TEST_CASE("the merge listed first goes first") {
    // b c is better than a b: a bc, not ab c.
    CHECK(Tokenizer(small_vocabulary({"b c", "a b"})).encode("abc") == Ids{'a', 256});
    CHECK(Tokenizer(small_vocabulary({"a b", "b c"})).encode("abc") == Ids{256, 'c'});
    // A merge of merges; abab takes three steps.
    CHECK(Tokenizer(small_vocabulary({"a b", "ab ab"})).encode("ababab") == Ids{257, 256});
    // The better merge becomes possible only through the worse one.
    CHECK(Tokenizer(small_vocabulary({"ab c", "a b", "c d"})).encode("abcd") == Ids{256, 'd'});
}

TEST_CASE("of equal merges the leftmost goes first") {
    const Tokenizer tokenizer(small_vocabulary({"a a", "aa a"}));
    CHECK(tokenizer.encode("aa") == Ids{256});
    CHECK(tokenizer.encode("aaa") == Ids{257});
    CHECK(tokenizer.encode("aaaa") == Ids{256, 256});
    CHECK(tokenizer.encode("aaaaa") == Ids{256, 257});
}

TEST_CASE("merges stay inside a piece") {
    // Ġ is the space: " b" may merge, "a " may not.
    const Tokenizer tokenizer(small_vocabulary({"a \u0120", "\u0120 b", "1 2", "\u010D \u010A"}));
    CHECK(tokenizer.encode("a b") == Ids{'a', 257});
    CHECK(tokenizer.encode("12") == Ids{'1', '2'});
    CHECK(tokenizer.encode("a\r\nb") == Ids{'a', 259, 'b'});
}

TEST_CASE("special tokens are found first, the longest of them") {
    const Tokenizer tokenizer(
        small_vocabulary({"a b"}, {"<x>", "<x>y", "<|im_end|>", "tri lingual", "\u00e9!"}));
    CHECK(tokenizer.encode("ab<x>ab") == Ids{256, 257, 256});
    CHECK(tokenizer.encode("a<x>b") == Ids{'a', 257, 'b'});
    CHECK(tokenizer.encode("<x>y<x>") == Ids{258, 257});
    CHECK(tokenizer.encode("<x><x>z") == Ids{257, 257, 'z'});
    CHECK(tokenizer.encode("<<x>>") == Ids{'<', 257, '>'});
    CHECK(tokenizer.encode("<|im_end|") == bytes_as_ids("<|im_end|"));
    CHECK(tokenizer.encode("<|im_<|im_end|>") == [] {
        Ids ids = bytes_as_ids("<|im_");
        ids.push_back(259);
        return ids;
    }());
    CHECK(tokenizer.encode("tri lingual") == Ids{260});
    // In the raw text, before normalisation.
    CHECK(tokenizer.encode("\u00e9!") == Ids{261});
    CHECK(tokenizer.encode("e\u0301!") == bytes_as_ids("\u00e9!"));
}

TEST_CASE("text is normalised between special tokens, not across them") {
    const Tokenizer tokenizer(small_vocabulary({}, {"e<"}));
    CHECK(tokenizer.encode("e\u0301") == bytes_as_ids("\u00e9"));
    CHECK(tokenizer.encode("e<\u0301") == [] {
        Ids ids = bytes_as_ids("\u0301");
        ids.insert(ids.begin(), 256);
        return ids;
    }());
}

TEST_CASE("bytes that are not UTF-8 count as the replacement character") {
    const Tokenizer tokenizer(small_vocabulary({}, {"<x>"}));
    CHECK(tokenizer.encode("a\xff") == bytes_as_ids("a\uFFFD"));
    CHECK(tokenizer.encode("\xe4\xb8<x>") == [] {
        Ids ids = bytes_as_ids("\uFFFD");
        ids.push_back(256);
        return ids;
    }());
}

TEST_CASE("ids are decoded to the bytes they stand for") {
    const Tokenizer tokenizer(small_vocabulary({"\u0120 b"}, {"<|im_end|>", "\u0120x y"}));
    const std::string text = "a b\r\n\u4e2d<|im_end|>\u0120x y";
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    CHECK(tokenizer.decode({}).empty());
    CHECK(tokenizer.decode(Ids{0xE4}) == "\xe4");
    for (const int32_t id : {-1, 259}) {
        const auto error = test::error_of([&] { tokenizer.decode(Ids{id}); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions(std::to_string(id)));
    }
}

TEST_CASE("tokens are found by name") {
    const Tokenizer tokenizer(small_vocabulary({}, {"<|endoftext|>"}));
    CHECK(tokenizer.find("<|endoftext|>") == 256);
    CHECK(tokenizer.id_of("a") == 'a');
    CHECK(tokenizer.pad_id() == 256);
    CHECK_FALSE(tokenizer.find("ab").has_value());
    CHECK_FALSE(tokenizer.find("").has_value());
}

TEST_CASE("a missing padding token matters only when it is asked for") {
    const Tokenizer tokenizer(small_vocabulary({}));
    CHECK(tokenizer.encode("a") == Ids{'a'});
    const auto error = test::error_of([&] { tokenizer.pad_id(); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("small.gguf"));
    CHECK(error.mentions("<|endoftext|>"));
}

TEST_CASE("a vocabulary that cannot work is rejected") {
    const auto error_with = [](auto change) {
        Vocabulary vocabulary = small_vocabulary({"a b"}, {"<x>"});
        change(vocabulary);
        const auto error = test::error_of([&] { Tokenizer{vocabulary}; });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("small.gguf"));
        return error;
    };
    CHECK(error_with([](Vocabulary& v) { v.tokens[200] = "elsewhere"; }).mentions("byte 200"));
    CHECK(error_with([](Vocabulary& v) {
              v.tokens.clear();
              v.special.clear();
          }).mentions("byte 0"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {"a xyz"}; }).mentions("'xyz'"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {"b a"}; }).mentions("'ba'"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {"ab"}; }).mentions("two tokens"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {"a b c"}; }).mentions("'b c'"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {""}; }).mentions("merge 0"));
    CHECK(error_with([](Vocabulary& v) { v.merges = {"a "}; }).mentions("merge 0"));
    CHECK(error_with([](Vocabulary& v) { v.special = {-1}; }).mentions("-1"));
    CHECK(error_with([](Vocabulary& v) { v.special = {1000}; }).mentions("1000"));
    CHECK(error_with([](Vocabulary& v) { v.tokens[257].clear(); }).mentions("257"));
}

TEST_CASE("tokenizer.json is read with merges in both forms") {
    nlohmann::json json = {
        {"added_tokens", {{{"id", 4}, {"content", "<think>"}, {"special", false}}}},
        {"pre_tokenizer",
         {{"pretokenizers",
           {{{"type", "Split"},
             {"pattern",
              {{"Regex",
                R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}}}}}}},
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}}}};
    for (const nlohmann::json& merge : {nlohmann::json("a b"), nlohmann::json{"a", "b"}}) {
        json["model"]["merges"] = nlohmann::json::array({merge});
        const Vocabulary vocabulary = read_tokenizer_json(json.dump(), "tokenizer.json");
        CHECK(vocabulary.tokens == std::vector<std::string>{"a", "b", "ab", "", "<think>"});
        CHECK(vocabulary.merges == std::vector<std::string>{"a b"});
        CHECK(vocabulary.special == Ids{4});
        CHECK(vocabulary.file == "tokenizer.json");
    }

    const auto kind_with = [&](const char* pointer, const nlohmann::json& value) {
        nlohmann::json changed = json;
        changed[nlohmann::json::json_pointer(pointer)] = value;
        const auto error =
            test::error_of([&] { read_tokenizer_json(changed.dump(), "tokenizer.json"); });
        CHECK(error.mentions("tokenizer.json"));
        return error.kind;
    };
    CHECK(kind_with("/model/type", "Unigram") == ErrorKind::unsupported);
    CHECK(kind_with("/pre_tokenizer", nlohmann::json::object()) == ErrorKind::unsupported);
    CHECK(kind_with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+") ==
          ErrorKind::unsupported);
    CHECK(kind_with("/pre_tokenizer", nullptr) == ErrorKind::bad_file);
    CHECK(kind_with("/model/vocab/a", -1) == ErrorKind::bad_file);
    CHECK(kind_with("/model/vocab/a", 2'000'000'000) == ErrorKind::bad_file);
    CHECK(kind_with("/model/vocab/a", "x") == ErrorKind::bad_file);
    CHECK(kind_with("/model/merges", nlohmann::json::array({1})) == ErrorKind::bad_file);
    CHECK(kind_with("/added_tokens/0/id", 5'000'000'000) == ErrorKind::bad_file);
    CHECK(kind_with("/added_tokens/0", nlohmann::json::object()) == ErrorKind::bad_file);
    for (const char* broken : {"", "[]", "{", "{}", "3", "{\"model\": 1}"}) {
        CAPTURE(broken);
        CHECK(test::error_of([&] { read_tokenizer_json(broken, "x.json"); }).kind ==
              ErrorKind::bad_file);
    }
}

TEST_CASE("long prompts take no longer than they must") {
    // 100 kB each; they are single pieces, repeated beginnings of special tokens, or long runs.
    // Measured: under 0.08 s each with the Qwen3 vocabulary, 0.3 s with sanitizers. Searching the
    // whole piece for every merge would take minutes, so one second tells the two apart on any
    // machine.
    const Tokenizer tokenizer = tiny_tokenizer();
    for (const char* unit :
         {"a", "in", "\u4e2d\u6587", "the ", " ", "\n", " \n", "<", "<|im_start|", "<think>",
          "\u0315\u0323", "e\u0301", "!", "7", "'s", "\xff"}) {
        CAPTURE(unit);
        CHECK(seconds_to_encode(tokenizer, repeated(unit, 100'000)) < 1.0);
    }
}

}  // namespace
}  // namespace flux2
