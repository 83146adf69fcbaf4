// Configuration of a text encoder: GGUF keys, or a Hugging Face configuration file.
#pragma once

#include "checkpoints/inventory.hpp"

#include <cstdint>
#include <vector>

namespace flux2 {

// The defaults are those of Qwen3 in FLUX.2 klein.
struct TextConfig {
    TextFamily family = TextFamily::qwen3;
    std::vector<int64_t> layers = {9, 18, 27};  // whose outputs are used, counted from 1
    int64_t text_length = 512;                  // of a prompt, in tokens
    double rope_theta = 1e6;
    double eps = 1e-6;
    int64_t context_length = 40960;
};

// Defaults for klein's Qwen3 and dev's Mistral.
TextConfig default_text_config(TextFamily family);

// From the file's own keys, else its configuration, else its family's defaults. Throws bad_file,
// naming the file, for values that make no sense.
TextConfig read_text_config(const Checkpoint& checkpoint);

}  // namespace flux2
