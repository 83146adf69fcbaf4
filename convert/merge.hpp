// LoRAs that are merged into a checkpoint while it is converted (--lora).
#pragma once

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"

#include <string>
#include <vector>

namespace flux2::convert {

// Opens files named as base/file_and_strength says; adapters of strength 0 too. Throws as
// AdapterFile::open.
std::vector<UsedAdapter> open_adapters(const std::vector<std::string>& texts);

// "blueprint.safetensors:0.8", as the file's metadata notes it.
std::string to_string(const UsedAdapter& adapter);

// A tensor of a checkpoint as adapters change it, whole in memory in F32.
class MergedTensor {
  public:
    // Throws bad_file for values of the adapters that are not finite.
    MergedTensor(const ModelTensor& source, const AdapterSet& adapters);
    MergedTensor(const MergedTensor&) = delete;
    MergedTensor& operator=(const MergedTensor&) = delete;

    // Valid while this object lives.
    const ModelTensor& tensor() const { return tensor_; }

  private:
    std::vector<float> values_;
    ModelTensor tensor_;
};

}  // namespace flux2::convert
