// Which transformer and which text encoder of FLUX.2 belong together.
#pragma once

#include "networks/sizes.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace flux2 {

struct Family {
    const char* transformer;   // "klein 4B"
    int64_t text_width;        // of the features that one gives and the other takes
    const char* text_encoder;  // "Qwen3-4B"
    const char* text_name;     // "Qwen3 4B", when a file does not name itself
    TextFamily text_family;
    int64_t text_hidden;  // of the text encoder
    int64_t text_ffn;
    const char* tokenizer_origin;  // where its tokenizer is published
};

inline constexpr std::array kFamilies = {
    Family{"klein 4B", 7680, "Qwen3-4B", "Qwen3 4B", TextFamily::qwen3, 2560, 9728,
           "Qwen/Qwen3-4B"},
    Family{"klein 9B", 12288, "Qwen3-8B", "Qwen3 8B", TextFamily::qwen3, 4096, 12288,
           "Qwen/Qwen3-8B"},
    Family{"dev", 15360, "Mistral Small 3.2", "Mistral Small 3 24B", TextFamily::mistral, 5120,
           32768, "black-forest-labs/FLUX.2-dev (folder tokenizer)"},
};

// By the width of the text features; null for a family of another size.
const Family* find_family(int64_t text_width);
// By the text encoder's hidden size; null likewise.
const Family* find_family(TextFamily text_family, int64_t text_hidden);

// The smallest whose text encoder is of this kind and at least as wide, else the largest.
const Family& nearest_family(TextFamily text_family, int64_t text_hidden);

// "klein 4B goes with Qwen3-4B, klein 9B with Qwen3-8B, dev with Mistral Small 3.2"
std::string families_in_words();

}  // namespace flux2
