// A tokenizer's files (checkpoints/tokenizer_file) -> the GGUF keys llama.cpp reads.
#pragma once

#include "formats/metadata.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>

namespace flux2::convert {

// Adds tokens, merges, special ids and the chat template. The vocabulary is filled up to
// `n_tokens` rows, as the embedding has them. `config` is the model's config.json (or an empty
// object). Throws bad_file when the tokenizer is broken or larger than that, unsupported when it is
// of another kind or splits text in another way than the models that FLUX.2 uses.
void add_tokenizer(Metadata& metadata, const std::filesystem::path& tokenizer, int64_t n_tokens,
                   const nlohmann::json& config);

}  // namespace flux2::convert
