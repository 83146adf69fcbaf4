// Tensors that took time to compute, kept in a folder of bounded size between runs of the program.
#pragma once

#include "base/host_tensor.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

// Entries are found by their whole key, which is stored with them. A folder that cannot be used
// makes an empty cache and a warning, never a failure.
class TensorCache {
  public:
    // An empty folder name: no cache.
    TensorCache(std::filesystem::path folder, uint64_t max_bytes);

    std::optional<HostTensor> find(const std::string& key) const;
    // The entries used longest ago make room.
    void store(const std::string& key, const HostTensor& tensor) const;

  private:
    std::filesystem::path file_of(const std::string& key) const;
    void make_room(uint64_t bytes) const;

    std::filesystem::path folder_;
    uint64_t max_bytes_;
};

}  // namespace flux2
