#include "text/tekken.hpp"

#include "base/check.hpp"
#include "base/split_patterns.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace flux2 {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 20;  // Tekken has 131,072; a bound for broken files

// Special tokens that matter here, for files that do not list them (before their version 7).
constexpr std::pair<size_t, const char*> kKnownSpecial[] = {{0, "<unk>"},
                                                            {1, "<s>"},
                                                            {2, "</s>"},
                                                            {3, "[INST]"},
                                                            {4, "[/INST]"},
                                                            {10, "[IMG]"},
                                                            {11, "<pad>"},
                                                            {17, "[SYSTEM_PROMPT]"},
                                                            {18, "[/SYSTEM_PROMPT]"}};

// 64 for a character that is none of base64.
uint32_t base64_digit(char c) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t place = kDigits.find(c);
    return place == std::string_view::npos ? 64 : static_cast<uint32_t>(place);
}

std::string from_base64(std::string_view text, const std::string& file) {
    while (text.ends_with('=')) {
        text.remove_suffix(1);
    }
    std::string bytes;
    uint32_t held = 0;
    int n_bits = 0;
    for (const char c : text) {
        const uint32_t digit = base64_digit(c);
        if (digit == 64) {
            fail(ErrorKind::bad_file, file, ": token_bytes '", text, "' are not base64");
        }
        held = held << 6 | digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            bytes.push_back(static_cast<char>(held >> n_bits & 0xFF));
        }
    }
    return bytes;
}

// Ids of special tokens are their ranks; unnamed ones get the name that Mistral's own files give to
// unused ones.
void put_special(Vocabulary& vocabulary, const json& root, size_t n_special) {
    for (size_t id = 0; id < n_special; ++id) {
        vocabulary.tokens.push_back("<SPECIAL_" + std::to_string(id) + ">");
        vocabulary.special.push_back(static_cast<int32_t>(id));
    }
    for (const auto& [id, name] : kKnownSpecial) {
        vocabulary.tokens[id] = name;
    }
    const auto listed = root.find("special_tokens");
    if (listed == root.end()) {
        return;
    }
    for (const json& token : *listed) {  // none when it is null
        const auto rank = token.at("rank").get<int64_t>();
        check(rank >= 0 && rank < static_cast<int64_t>(n_special), ErrorKind::bad_file,
              vocabulary.file, ": a special token has rank ", rank, ", expected 0 to ",
              n_special - 1);
        vocabulary.tokens[static_cast<size_t>(rank)] = token.at("token_str").get<std::string>();
    }
}

// Every split of a token into two others, sorted by the rank of the token, then of the left, then
// of the right one.
std::vector<std::string> make_merges(const std::vector<std::string>& by_rank) {
    std::unordered_map<std::string_view, size_t> ranks;
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
        ranks.emplace(by_rank[rank], rank);
    }
    std::vector<std::string> merges;
    for (const std::string& token : by_rank) {
        std::vector<std::pair<size_t, size_t>> splits;
        for (size_t at = 1; at < token.size(); ++at) {
            const auto left = ranks.find(std::string_view(token).substr(0, at));
            const auto right = ranks.find(std::string_view(token).substr(at));
            if (left != ranks.end() && right != ranks.end()) {
                splits.emplace_back(left->second, right->second);
            }
        }
        std::sort(splits.begin(), splits.end());
        for (const auto& [left, right] : splits) {
            merges.push_back(in_byte_alphabet(by_rank[left]) + " " +
                             in_byte_alphabet(by_rank[right]));
        }
    }
    return merges;
}

// The best `most` of those listed, which are in the order of their ranks.
void put_ordinary(Vocabulary& vocabulary, const json& listed, size_t most) {
    std::vector<std::string> by_rank;
    for (size_t rank = 0; rank < std::min(listed.size(), most); ++rank) {
        const json& token = listed.at(rank);
        check(token.at("rank").get<size_t>() == rank, ErrorKind::bad_file, vocabulary.file,
              ": token number ", rank, " has another rank; the file is broken");
        by_rank.push_back(from_base64(token.at("token_bytes").get<std::string>(), vocabulary.file));
        vocabulary.tokens.push_back(in_byte_alphabet(by_rank.back()));
    }
    vocabulary.merges = make_merges(by_rank);
}

}  // namespace

Vocabulary read_tekken_json(std::string_view json_text, const std::string& file) {
    Vocabulary vocabulary;
    vocabulary.file = file;
    vocabulary.split = Split::tekken;
    try {
        const json root = json::parse(json_text);
        const json& config = root.at("config");
        const auto n_tokens = config.at("default_vocab_size").get<int64_t>();
        const auto n_special = config.at("default_num_special_tokens").get<int64_t>();
        check(n_special >= 20 && n_special < n_tokens && n_tokens <= kMaxTokens,
              ErrorKind::bad_file, file, ": says it has ", n_tokens, " tokens, ", n_special,
              " of them special, which makes no sense");
        check(config.at("pattern").get<std::string>() == kTekkenSplit, ErrorKind::unsupported, file,
              ": does not split text as Mistral Small does");
        put_special(vocabulary, root, static_cast<size_t>(n_special));
        put_ordinary(vocabulary, root.at("vocab"), static_cast<size_t>(n_tokens - n_special));
    } catch (const json::exception& error) {
        fail(ErrorKind::bad_file, file, ": is not a tekken.json: ", error.what());
    }
    return vocabulary;
}

}  // namespace flux2
