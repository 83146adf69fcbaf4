#include "text/chat.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace flux2 {

std::string klein_chat(std::string_view prompt) {
    std::string text = "<|im_start|>user\n";
    text += prompt;
    text += "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    return text;
}

EncodedPrompt encode_prompt(const Tokenizer& tokenizer, std::string_view prompt, int64_t length) {
    check(length >= 1, ErrorKind::bad_argument, "a prompt is encoded to ", length,
          " tokens, expected 1 or more");
    EncodedPrompt encoded;
    encoded.ids = tokenizer.encode(klein_chat(prompt));
    const auto n = static_cast<int64_t>(encoded.ids.size());
    encoded.n_real = std::min(n, length);
    encoded.n_cut = n - encoded.n_real;
    encoded.ids.resize(static_cast<size_t>(length), tokenizer.pad_id());
    return encoded;
}

}  // namespace flux2
