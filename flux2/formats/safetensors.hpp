// Safetensors: 8 bytes header length, a JSON header, then raw data (format:
// huggingface/safetensors).
#pragma once

#include "formats/tensor_directory.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// Reads and checks the header of a file mapped at `bytes`; `file` names it in errors.
// Throws bad_file before anything of a claimed size is allocated.
TensorDirectory parse_safetensors(const std::string& file, std::span<const std::byte> bytes);

// A tensor of floats to be written; its shape is in PyTorch's order, slowest first.
struct FloatTensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
};

// Writes an F32 file atomically.
void write_safetensors(const std::filesystem::path& path, const std::vector<FloatTensor>& tensors);

// A tensor in the bytes of its type, which safetensors must know; the shape as in FloatTensor.
struct EncodedTensor {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
};

// The same where the bytes lie.
struct TensorBytes {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;
};

// Write a file of any types, with texts under __metadata__, atomically and without copying tensors.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata);
void write_safetensors(const std::filesystem::path& path, const std::vector<EncodedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

// The index of a sharded checkpoint: tensor name -> file name beside the index.
// Throws bad_file for broken JSON, duplicate names and file names that leave the folder.
std::map<std::string, std::string> read_shard_index(const std::filesystem::path& index);

}  // namespace flux2
