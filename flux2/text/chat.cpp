#include "text/chat.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <span>

namespace flux2 {
namespace {

constexpr std::string_view kBefore = "<|im_start|>user\n";
constexpr std::string_view kAfter = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

}  // namespace

std::string klein_chat(std::string_view prompt) {
    std::string text(kBefore);
    text += prompt;
    text += kAfter;
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
    if (encoded.n_cut > 0) {
        encoded.cut_text =
            tokenizer.decode(std::span(encoded.ids).subspan(static_cast<size_t>(encoded.n_real)));
        if (encoded.cut_text.ends_with(kAfter)) {
            encoded.cut_text.resize(encoded.cut_text.size() - kAfter.size());
        } else {
            encoded.cut_text.clear();  // only the template's end did not fit
        }
    }
    encoded.ids.resize(static_cast<size_t>(length), tokenizer.pad_id());
    return encoded;
}

}  // namespace flux2
