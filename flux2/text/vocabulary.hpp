// The data of a byte-level BPE tokenizer, and reading them from tokenizer.json.
#pragma once

#include "text/split.hpp"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

struct Vocabulary {
    std::vector<std::string>
        tokens;  // by id, in GPT-2's byte alphabet; empty where an id is unused
    std::vector<std::string> merges;  // "left right", best first
    std::vector<int32_t> special;     // ids of special tokens, matched literally in a text
    std::string file;                 // named in errors
    Split split = Split::qwen;
};

// GPT-2's alphabet: the character that stands for each byte.
std::array<char32_t, 256> byte_alphabet();
// Bytes in that alphabet.
std::string in_byte_alphabet(std::string_view bytes);

// From a parsed Hugging Face tokenizer.json; every added token is special. Throws bad_file when it
// is broken and unsupported when it is not a BPE tokenizer that splits text as Qwen or Mistral
// does.
Vocabulary vocabulary_of(const nlohmann::json& tokenizer, const std::string& file);
// The same from the text of the file.
Vocabulary read_tokenizer_json(std::string_view json_text, const std::string& file);

}  // namespace flux2
