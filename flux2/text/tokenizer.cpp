#include "text/tokenizer.hpp"

#include "base/check.hpp"
#include "text/unicode.hpp"

#include <limits>
#include <queue>
#include <tuple>
#include <utility>

namespace flux2 {
namespace {

std::unordered_map<char32_t, char> make_byte_of_symbol() {
    const auto alphabet = byte_alphabet();
    std::unordered_map<char32_t, char> bytes;
    for (size_t byte = 0; byte < alphabet.size(); ++byte) {
        bytes[alphabet[byte]] = static_cast<char>(byte);
    }
    return bytes;
}

uint64_t pair_key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A piece while it is merged: a list of tokens linked both ways. A merge extends the left token and
// removes the right one.
struct Symbol {
    int32_t id;        // -1: merged away
    int64_t previous;  // -1: none
    int64_t next;      // -1: none
};

// A merge that was possible when it was added; it is still valid if both ids are unchanged.
struct Candidate {
    int32_t rank;
    int64_t left;  // index of the left symbol
    int32_t left_id;
    int32_t right_id;
    int32_t merged_id;
};

// Best rank first, then leftmost.
struct ComesLater {
    bool operator()(const Candidate& a, const Candidate& b) const {
        return std::tie(a.rank, a.left) > std::tie(b.rank, b.left);
    }
};

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)), special_(1) {
    constexpr size_t kMax = std::numeric_limits<int32_t>::max();
    const std::string& file = vocabulary_.file;
    check(vocabulary_.tokens.size() < kMax && vocabulary_.merges.size() < kMax, ErrorKind::bad_file,
          file, ": holds ", vocabulary_.tokens.size(), " tokens and ", vocabulary_.merges.size(),
          " merges, expected fewer than ", kMax);
    const auto n_tokens = static_cast<int32_t>(vocabulary_.tokens.size());
    ids_.reserve(vocabulary_.tokens.size());
    for (int32_t id = 0; id < n_tokens; ++id) {
        ids_.try_emplace(vocabulary_.tokens[static_cast<size_t>(id)], id);
    }
    ids_.erase("");
    for (const int32_t id : vocabulary_.special) {
        check(id >= 0 && id < n_tokens, ErrorKind::bad_file, file, ": special token ", id,
              " is outside the vocabulary of ", n_tokens, " tokens");
        add_special(id);
    }
    const auto alphabet = byte_alphabet();
    for (size_t byte = 0; byte < alphabet.size(); ++byte) {
        const auto id = find(to_utf8({&alphabet[byte], 1}));
        check(id.has_value(), ErrorKind::bad_file, file, ": has no token for byte ", byte,
              ", expected one for each of the 256; this is not a byte-level BPE vocabulary");
        byte_ids_[byte] = *id;
    }
    merges_.reserve(vocabulary_.merges.size());
    for (int32_t rank = 0; rank < static_cast<int32_t>(vocabulary_.merges.size()); ++rank) {
        add_merge(rank);
    }
    // merges_ holds them now, and a real vocabulary has megabytes of them.
    vocabulary_.merges = {};
}

void Tokenizer::add_special(int32_t id) {
    const std::string& token = vocabulary_.tokens[static_cast<size_t>(id)];
    check(!token.empty(), ErrorKind::bad_file, vocabulary_.file, ": special token ", id,
          " has no text");
    size_t node = 0;
    for (const char c : token) {
        const auto [place, is_new] = special_[node].next.try_emplace(c, special_.size());
        node = place->second;
        if (is_new) {
            special_.emplace_back();
        }
    }
    special_[node].id = id;
    ids_.insert_or_assign(token, id);
}

void Tokenizer::add_merge(int32_t rank) {
    const std::string& merge = vocabulary_.merges[static_cast<size_t>(rank)];
    const size_t space = merge.find(' ');
    if (space == std::string::npos) {
        fail(ErrorKind::bad_file, vocabulary_.file, ": merge ", rank, " is '", merge,
             "', expected two tokens with a space between them");
    }
    const std::string left = merge.substr(0, space);
    const std::string right = merge.substr(space + 1);
    const auto known = [&](const std::string& token) {
        const auto id = find(token);
        if (!id) {
            fail(ErrorKind::bad_file, vocabulary_.file, ": merge ", rank, " ('", merge,
                 "') names token '", token, "', which is not in the vocabulary");
        }
        return *id;
    };
    const int32_t left_id = known(left);
    const int32_t right_id = known(right);
    merges_[pair_key(left_id, right_id)] = {.rank = rank, .id = known(left + right)};
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    std::vector<int32_t> ids;
    size_t plain = 0;  // where the text since the last special token begins
    for (size_t at = 0; at < text.size();) {
        const SpecialMatch match = special_at(text, at);
        if (match.length == 0) {
            ++at;
            continue;
        }
        encode_plain_text(text.substr(plain, at - plain), ids);
        ids.push_back(match.id);
        at += match.length;
        plain = at;
    }
    encode_plain_text(text.substr(plain), ids);
    return ids;
}

// The longest special token that begins at `at`.
Tokenizer::SpecialMatch Tokenizer::special_at(std::string_view text, size_t at) const {
    SpecialMatch match;
    const SpecialNode* node = &special_.front();
    for (size_t i = at; i < text.size(); ++i) {
        const auto next = node->next.find(text[i]);
        if (next == node->next.end()) {
            break;
        }
        node = &special_[next->second];
        if (node->id >= 0) {
            match = {.id = node->id, .length = i + 1 - at};
        }
    }
    return match;
}

void Tokenizer::encode_plain_text(std::string_view text, std::vector<int32_t>& ids) const {
    const bool qwen = split() == Split::qwen;
    const std::u32string points = qwen ? nfc(from_utf8(text)) : from_utf8(text);
    for (size_t at = 0; at < points.size();) {
        const std::u32string_view piece = next_piece(split(), points, at);
        const std::string bytes = to_utf8(piece);
        const auto whole = qwen ? std::nullopt : find(in_byte_alphabet(bytes));
        if (whole) {
            ids.push_back(*whole);
        } else {
            merge_piece(bytes, ids);
        }
        at += piece.size();
    }
}

const Tokenizer::Merge* Tokenizer::find_merge(int32_t left, int32_t right) const {
    const auto found = merges_.find(pair_key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
}

// Merges the best pair repeatedly until none is left. Pieces can be as long as the prompt, so
// candidates are kept in a heap instead of being searched for.
void Tokenizer::merge_piece(std::string_view bytes, std::vector<int32_t>& ids) const {
    const auto n = static_cast<int64_t>(bytes.size());
    std::vector<Symbol> symbols;
    symbols.reserve(bytes.size());
    for (int64_t i = 0; i < n; ++i) {
        const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
        symbols.push_back({byte_ids_[byte], i - 1, i + 1 < n ? i + 1 : -1});
    }
    const auto symbol = [&](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };

    std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> candidates;
    const auto note_pair = [&](int64_t left) {
        if (left < 0 || symbol(left).next < 0) {
            return;
        }
        const int32_t left_id = symbol(left).id;
        const int32_t right_id = symbol(symbol(left).next).id;
        if (const Merge* merge = find_merge(left_id, right_id)) {
            candidates.push({merge->rank, left, left_id, right_id, merge->id});
        }
    };
    for (int64_t i = 0; i < n; ++i) {
        note_pair(i);
    }
    while (!candidates.empty()) {
        const Candidate best = candidates.top();
        candidates.pop();
        Symbol& left = symbol(best.left);
        if (left.id != best.left_id || left.next < 0 || symbol(left.next).id != best.right_id) {
            continue;  // one of the two has been merged since
        }
        Symbol& right = symbol(left.next);
        left.id = best.merged_id;
        left.next = right.next;
        right.id = -1;
        if (left.next >= 0) {
            symbol(left.next).previous = best.left;
        }
        note_pair(left.previous);
        note_pair(best.left);
    }
    for (int64_t i = n > 0 ? 0 : -1; i >= 0; i = symbol(i).next) {
        ids.push_back(symbol(i).id);
    }
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
    const auto byte_of_symbol = make_byte_of_symbol();
    std::string bytes;
    for (const int32_t id : ids) {
        if (id < 0 || static_cast<size_t>(id) >= vocabulary_.tokens.size()) {
            fail(ErrorKind::bad_argument, "token id ", id, " is outside the vocabulary of ",
                 vocabulary_.tokens.size(), " tokens");
        }
        const std::string& token = vocabulary_.tokens[static_cast<size_t>(id)];
        if (special_at(token, 0).length == token.size()) {
            bytes += token;
            continue;
        }
        for (const char32_t c : from_utf8(token)) {
            const auto byte = byte_of_symbol.find(c);
            if (byte != byte_of_symbol.end()) {
                bytes.push_back(byte->second);
            } else {
                bytes += to_utf8(
                    {&c, 1});  // not in the byte alphabet: an unused token with an artificial name
            }
        }
    }
    return bytes;
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

int32_t Tokenizer::id_of(std::string_view token) const {
    const auto id = find(token);
    check(id.has_value(), ErrorKind::bad_file, vocabulary_.file, ": has no token '", token,
          "', expected in the vocabulary of a FLUX.2 text encoder");
    return *id;
}

}  // namespace flux2
