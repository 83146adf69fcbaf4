// How the tokenizers of FLUX.2's text encoders split a text before merging, and by which regular
// expressions a tokenizer.json says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace flux2 {

enum class Split { qwen, tekken };

// Qwen2 and Qwen3.
inline constexpr std::string_view kQwenSplit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Tekken, Mistral's.
inline constexpr std::string_view kTekkenSplit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// How a parsed tokenizer.json splits: by exactly one regular expression, one of those above.
// Nothing when it splits in another way. Json is nlohmann::json, whose exceptions it throws.
template <typename Json>
std::optional<Split> split_of_tokenizer(const Json& tokenizer) {
    const Json pre_tokenizer = tokenizer.value("pre_tokenizer", Json::object());
    std::optional<Split> split;
    for (const Json& step : pre_tokenizer.value("pretokenizers", Json::array({pre_tokenizer}))) {
        const Json pattern = step.value("pattern", Json::object());
        if (pattern.empty()) {
            continue;
        }
        const std::string regex = pattern.value("Regex", "");
        if (split || (regex != kQwenSplit && regex != kTekkenSplit)) {
            return std::nullopt;
        }
        split = regex == kQwenSplit ? Split::qwen : Split::tekken;
    }
    return split;
}

}  // namespace flux2
