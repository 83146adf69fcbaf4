// Base, distilled and KV models have the same tensors; this decides which one a file is, and why.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

enum class Variant { klein, base, kv, dev };

const char* to_string(Variant variant);
// Throws bad_argument for an unknown name.
Variant parse_variant(const std::string& name);

struct VariantChoice {
    Variant variant;
    std::string reason;  // "the file name contains 'base'"
};

// In this order: the user's option, the file's own key, model_index.json, the names of file and
// folder, else distilled. dev is recognised by its tensors. Throws bad_argument for an option that
// the tensors contradict, bad_file for a key that names no variant.
VariantChoice decide_variant(const Checkpoint& checkpoint, const TransformerSizes& sizes,
                             std::optional<Variant> option);

// Whether the name contains the word, not as a part of a longer word: "klein-base-4b" but not
// "database".
bool contains_word(const std::string& name, const std::string& word);

struct SamplingDefaults {
    bool distilled;
    int steps;
    float guidance;
    int width = 1024, height = 1024;
};
SamplingDefaults sampling_defaults(Variant variant);
// The same with what the file itself names: the size, and steps and guidance unless they are those
// of another variant.
SamplingDefaults sampling_defaults(const Checkpoint& checkpoint, Variant variant);

// "FLUX.2 klein base 4B"
std::string display_name(Variant variant, const TransformerSizes& sizes);
// "Qwen3 4B", "Mistral Small 3 24B"
std::string display_name(const TextEncoderSizes& sizes);

}  // namespace flux2
