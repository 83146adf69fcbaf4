// Byte-level BPE as Qwen3 and Mistral use it: prompt text to token ids and back. Gives the ids of
// Hugging Face's tokenizers, normalisation included.
#pragma once

#include "text/vocabulary.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flux2 {

// Constant once made: any number of threads may use it.
class Tokenizer {
  public:
    // Throws bad_file when a byte has no token, a merge names a token that is not there, or a
    // special id has no text.
    explicit Tokenizer(Vocabulary vocabulary);

    // Special tokens are matched in the unchanged text, the longest first. The text between them is
    // normalised to NFC (not for Tekken), split and merged; for Tekken a piece that is itself a
    // token is not merged. Adds no tokens. Bytes that are not UTF-8 count as U+FFFD. Takes O(n log
    // n) time for any text.
    std::vector<int32_t> encode(std::string_view text) const;

    // The bytes the ids stand for. Throws bad_argument for an id outside the vocabulary.
    std::string decode(std::span<const int32_t> ids) const;

    // The token as the vocabulary spells it.
    std::optional<int32_t> find(std::string_view token) const;
    // Throws bad_file when there is no such token.
    int32_t id_of(std::string_view token) const;
    // klein pads with <|endoftext|>, dev with <pad>, whatever padding token a file names.
    int32_t pad_id() const { return id_of(split() == Split::qwen ? "<|endoftext|>" : "<pad>"); }

    Split split() const { return vocabulary_.split; }

  private:
    struct Merge {
        int32_t rank = 0;  // lower merges first
        int32_t id = 0;    // of the result
    };
    // Special tokens as a tree of bytes; node 0 is the root.
    struct SpecialNode {
        std::map<char, size_t> next;
        int32_t id = -1;  // of the token that ends here
    };
    struct SpecialMatch {
        int32_t id = -1;
        size_t length = 0;  // 0: none
    };

    void add_special(int32_t id);
    void add_merge(int32_t rank);
    SpecialMatch special_at(std::string_view text, size_t at) const;
    const Merge* find_merge(int32_t left, int32_t right) const;
    void encode_plain_text(std::string_view text, std::vector<int32_t>& ids) const;
    void merge_piece(std::string_view bytes, std::vector<int32_t>& ids) const;

    Vocabulary vocabulary_;
    std::unordered_map<std::string, int32_t> ids_;
    std::array<int32_t, 256> byte_ids_{};
    std::unordered_map<uint64_t, Merge> merges_;  // by both ids
    std::vector<SpecialNode> special_;
};

}  // namespace flux2
