// A prompt as the text encoders take it: inside a chat template, cut or padded to a fixed length.
// klein's goes with Qwen3's tokenizer, dev's with Mistral's.
#pragma once

#include "text/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// One user message, thinking disabled, the assistant's turn opened. The prompt goes in verbatim,
// also when it is empty.
std::string klein_chat(std::string_view prompt);

// A system message and one user message. The prompt goes in verbatim, except that [IMG], which
// would mark an image input, is removed.
std::string dev_chat(std::string_view prompt);

struct EncodedPrompt {
    std::vector<int32_t> ids;  // `length` of them
    int64_t n_real = 0;        // ids without the padding
    int64_t n_cut = 0;         // ids that did not fit; the end of the prompt is lost when over 0
    std::string cut_text;      // the text of the prompt that they stand for
};

// Puts the prompt into the template that goes with the tokenizer, cuts on the right, pads on the
// right (klein) or on the left (dev). The caller must report n_cut to the user. Throws bad_argument
// for a length below 1 and bad_file without a padding token.
EncodedPrompt encode_prompt(const Tokenizer& tokenizer, std::string_view prompt, int64_t length);

}  // namespace flux2
