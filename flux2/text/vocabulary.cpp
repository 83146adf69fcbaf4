#include "text/vocabulary.hpp"

#include "base/check.hpp"
#include "base/split_patterns.hpp"
#include "text/unicode.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace flux2 {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 20;  // Qwen3 has 151,669; a bound for broken files

void put(Vocabulary& vocabulary, const std::string& token, const json& json_id) {
    const auto id = json_id.get<int64_t>();
    check(id >= 0 && id < kMaxTokens, ErrorKind::bad_file, vocabulary.file, ": token '", token,
          "' has id ", id, ", expected 0 to ", kMaxTokens - 1);
    const auto place = static_cast<size_t>(id);
    vocabulary.tokens.resize(std::max(vocabulary.tokens.size(), place + 1));
    vocabulary.tokens[place] = token;
}

// Either "a b" or ["a", "b"]; both occur.
std::string merge_text(const json& merge) {
    return merge.is_string()
               ? merge.get<std::string>()
               : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
}

Split read_split(const json& root, const std::string& file) {
    const auto type = root.at("model").value("type", "BPE");
    check(type == "BPE", ErrorKind::unsupported, file, ": is a tokenizer of type ", type,
          ", expected BPE as in Qwen3 and Mistral");
    const std::optional<Split> split = split_of_tokenizer(root);
    check(split.has_value(), ErrorKind::unsupported, file,
          ": does not split text as Qwen3 or Mistral does; use the tokenizer.json of the text "
          "encoder");
    return *split;
}

}  // namespace

// Printable Latin-1 bytes stand for themselves, the other 68, in order, for U+0100 and up.
std::array<char32_t, 256> byte_alphabet() {
    std::array<char32_t, 256> alphabet{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
                               (byte >= 174 && byte <= 255);
        alphabet[byte] = printable ? byte : next++;
    }
    return alphabet;
}

std::string in_byte_alphabet(std::string_view bytes) {
    static const std::array<char32_t, 256> alphabet = byte_alphabet();
    std::u32string symbols;
    for (const char byte : bytes) {
        symbols.push_back(alphabet[static_cast<uint8_t>(byte)]);
    }
    return to_utf8(symbols);
}

Vocabulary vocabulary_of(const json& tokenizer, const std::string& file) {
    Vocabulary vocabulary;
    vocabulary.file = file;
    try {
        vocabulary.split = read_split(tokenizer, file);
        for (const auto& [token, id] : tokenizer.at("model").at("vocab").items()) {
            put(vocabulary, token, id);
        }
        for (const json& merge : tokenizer.at("model").at("merges")) {
            vocabulary.merges.push_back(merge_text(merge));
        }
        for (const json& added : tokenizer.value("added_tokens", json::array())) {
            put(vocabulary, added.at("content").get<std::string>(), added.at("id"));
            vocabulary.special.push_back(added.at("id").get<int32_t>());
        }
    } catch (const json::exception& error) {
        fail(ErrorKind::bad_file, file, ": is not a Hugging Face tokenizer: ", error.what());
    }
    return vocabulary;
}

Vocabulary read_tokenizer_json(std::string_view json_text, const std::string& file) {
    const json tokenizer = json::parse(json_text, nullptr, /*allow_exceptions=*/false);
    check(!tokenizer.is_discarded(), ErrorKind::bad_file, file, ": is no valid JSON");
    return vocabulary_of(tokenizer, file);
}

}  // namespace flux2
