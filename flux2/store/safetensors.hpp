// Safetensors: 8 bytes header length, a JSON header, then raw data (format:
// huggingface/safetensors).
#pragma once

#include "store/tensor_directory.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace flux2 {

// Reads and checks the header of a file mapped at `bytes`; `file` names it in errors.
// Throws bad_file before anything of a claimed size is allocated.
TensorDirectory parse_safetensors(const std::string& file, std::span<const std::byte> bytes);

// The index of a sharded checkpoint: tensor name -> file name beside the index.
// Throws bad_file for broken JSON, duplicate names and file names that leave the folder.
std::map<std::string, std::string> read_shard_index(const std::filesystem::path& index);

}  // namespace flux2
