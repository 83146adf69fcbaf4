// The tokenizer beside a text encoder: Hugging Face's tokenizer.json, or the older pair of
// vocab.json and merges.txt that comes with Qwen.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <vector>

namespace flux2 {

// tokenizer.json in this folder, else a vocab.json with merges.txt; empty when there is neither.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder);

// The same for a checkpoint (a file or a folder): beside it, else in ../tokenizer.
std::filesystem::path find_tokenizer_beside(const std::filesystem::path& checkpoint);

// The file and those beside it that read_tokenizer_file may read too.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& file);

// What a tokenizer.json says, also when the file is a vocab.json; merges.txt and the file that
// names the special tokens (tokenizer_config.json, else added_tokens.json) must then lie beside it.
// Throws bad_file.
nlohmann::json read_tokenizer_file(const std::filesystem::path& file);

}  // namespace flux2
