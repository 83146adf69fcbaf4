// From a prompt to text features: which tokenizer belongs to a text encoder, and the encoding.
#pragma once

#include "base/host_tensor.hpp"
#include "checkpoints/checkpoint.hpp"
#include "models/text_encoder.hpp"
#include "text/chat.hpp"
#include "text/tokenizer.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace flux2 {

// The tokenizer inside a GGUF file; for a safetensors checkpoint the one inside (ComfyUI's
// Mistral), else the one beside it or in ../tokenizer (checkpoints/tokenizer_file). Throws
// bad_file, with what to do, when there is none.
Tokenizer load_tokenizer(const Checkpoint& text_encoder);

// A hash of everything that load_tokenizer reads.
std::string tokenizer_hash(const Checkpoint& text_encoder);

// Whether there is one, and advice for the user when there is none.
bool has_tokenizer(const Checkpoint& text_encoder);
std::string tokenizer_advice(const Checkpoint& text_encoder);

// Features of a prompt [text_width, length]; `encoded` tells what was cut off.
struct PromptFeatures {
    HostTensor features;
    EncodedPrompt encoded;
};
PromptFeatures encode_prompt_features(const Tokenizer& tokenizer, TextEncoder& encoder,
                                      std::string_view prompt, int64_t length);

// Recorded features: a tensor [1, n, width] of a safetensors file -> [width, n]. Throws bad_file.
HostTensor read_features(const std::filesystem::path& file, const std::string& name);

}  // namespace flux2
