// Base, distilled and KV models have the same tensors; this decides which one a file is, and why.
#pragma once

#include "store/checkpoint.hpp"
#include "store/inventory.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace flux2::convert {

enum class Variant { klein, base, kv, dev };

const char* to_string(Variant variant);
// Throws bad_argument for an unknown name.
Variant parse_variant(const std::string& name);

struct VariantChoice {
    Variant variant;
    std::string reason;  // "the file name contains 'base'"
};

// In this order: the user's option, the file's own key, model_index.json, the names of file and
// folder, else distilled. dev shows in its tensors. Throws bad_argument for an option that the
// tensors contradict.
VariantChoice decide_variant(const Checkpoint& checkpoint, const TransformerSizes& sizes,
                             std::optional<Variant> option);

// Whether a name has the word in it, letters around it apart: "klein-base-4b" but not "database".
bool contains_word(const std::string& name, const std::string& word);

struct SamplingDefaults {
    bool distilled;
    int steps;
    float guidance;
};
SamplingDefaults sampling_defaults(Variant variant);

// "FLUX.2 klein base 4B"
std::string display_name(Variant variant, const TransformerSizes& sizes);

}  // namespace flux2::convert
