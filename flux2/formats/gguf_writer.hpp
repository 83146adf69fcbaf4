// GGUF, writing: the layout is computed first, then the data are written, then the file is renamed
// to its final name.
#pragma once

#include "base/file.hpp"
#include "formats/tensor_directory.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

struct GgufTensor {
    std::string name;
    TensorType type = TensorType::f32;  // a ggml type
    Shape shape;
};

// Header and offsets of a GGUF file with this metadata and these tensors.
struct GgufLayout {
    std::vector<std::byte> header;         // everything before the data
    std::vector<uint64_t> tensor_offsets;  // from the start of the file, one per tensor
    uint64_t file_bytes = 0;
};

GgufLayout lay_out_gguf(const Metadata& metadata, const std::vector<GgufTensor>& tensors);

// Writes one file under a temporary name beside its final one; finish() syncs and renames it.
// Destroyed before that, it removes the temporary file and the final name is untouched.
class GgufWriter {
  public:
    // Throws out_of_disk when the file would not fit.
    GgufWriter(const std::filesystem::path& path, const Metadata& metadata,
               std::vector<GgufTensor> tensors);

    // Writes bytes of tensor number `tensor`, `offset` bytes after its start. Several threads may
    // call this at the same time for different ranges.
    void write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes);

    // `metadata` may differ from the constructor's in values, but must take the same space.
    void finish(const Metadata& metadata);

    uint64_t file_bytes() const { return layout_.file_bytes; }

  private:
    std::vector<GgufTensor> tensors_;
    GgufLayout layout_;
    AtomicFile file_;
};

}  // namespace flux2
