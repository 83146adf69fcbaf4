#include "text/chat.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"

#include <algorithm>
#include <span>

namespace flux2 {
namespace {

// The text before and after a prompt.
struct Template {
    std::string_view before, after;
};

constexpr Template kKlein = {"<|im_start|>user\n",
                             "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"};

// With BFL's SYSTEM_MESSAGE (src/flux2/system_messages.py), its line break included: dev was
// trained with these bytes.
constexpr Template kDev = {
    "<s>[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give structured "
    "responses focusing on object relationships, object\nattribution and actions without "
    "speculation.[/SYSTEM_PROMPT][INST]",
    "[/INST]"};

std::string fill(const Template& chat, std::string_view prompt) {
    std::string text(chat.before);
    text += prompt;
    text += chat.after;
    return text;
}

std::string without(std::string_view text, std::string_view mark) {
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const size_t found = std::min(text.find(mark, at), text.size());
        result += text.substr(at, found - at);
        at = found + mark.size();
    }
    return result;
}

// The text from the code point on to which token `first` belongs.
std::string end_of(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t first) {
    const std::string text = tokenizer.decode(ids);
    size_t at = tokenizer.decode(ids.first(first)).size();
    while (at > 0 && at < text.size() && is_continuation(text[at])) {
        --at;
    }
    return text.substr(at);
}

}  // namespace

std::string klein_chat(std::string_view prompt) {
    return fill(kKlein, prompt);
}

std::string dev_chat(std::string_view prompt) {
    return fill(kDev, without(prompt, "[IMG]"));
}

EncodedPrompt encode_prompt(const Tokenizer& tokenizer, std::string_view prompt, int64_t length) {
    check(length >= 1, ErrorKind::bad_argument, "a prompt is encoded to ", length,
          " tokens, expected 1 or more");
    const bool klein = tokenizer.split() == Split::qwen;
    const std::string_view after = klein ? kKlein.after : kDev.after;
    EncodedPrompt encoded;
    encoded.ids = tokenizer.encode(klein ? klein_chat(prompt) : dev_chat(prompt));
    const auto n = static_cast<int64_t>(encoded.ids.size());
    encoded.n_real = std::min(n, length);
    encoded.n_cut = n - encoded.n_real;
    if (encoded.n_cut > 0) {
        encoded.cut_text = end_of(tokenizer, encoded.ids, static_cast<size_t>(encoded.n_real));
        if (encoded.cut_text.ends_with(after)) {
            encoded.cut_text.erase(encoded.cut_text.size() - after.size());
        } else {
            encoded.cut_text.clear();  // only the template's end did not fit
        }
    }
    encoded.ids.resize(static_cast<size_t>(encoded.n_real));
    encoded.ids.insert(klein ? encoded.ids.end() : encoded.ids.begin(),
                       static_cast<size_t>(length - encoded.n_real), tokenizer.pad_id());
    return encoded;
}

}  // namespace flux2
