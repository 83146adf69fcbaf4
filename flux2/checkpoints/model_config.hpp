// The configuration beside a language model's weights: config.json, or the keys of a GGUF.
#pragma once

#include "formats/tensor_source.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

namespace flux2 {

// X.config.json for X.safetensors, else config.json beside it; an empty object when there is none.
// Of a vision-language model only the section about its language model. Throws bad_file when it is
// no valid JSON.
nlohmann::json read_model_config(const TensorSource& source);

// "qwen3", "llama", "mistral3": what the keys of a GGUF begin with; empty when it does not say.
std::string architecture_of(const TensorSource& source);

// The size of a head, for models whose tensors do not show it; 128, which all of Mistral's have,
// when nothing says otherwise. Throws bad_file when it is no even number.
int64_t configured_head_dim(const TensorSource& source);

}  // namespace flux2
