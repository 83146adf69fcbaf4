// Tensors that took time to compute, kept in a folder of bounded size between runs of the program.
#pragma once

#include "base/host_tensor.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

struct CachedTensor {
    HostTensor value;
    std::string note;
};

// Entries are found by their whole key, which is stored with them and a checksum. A folder that
// cannot be used makes an empty cache and a warning, never a failure.
class TensorCache {
  public:
    // An empty folder name: no cache.
    TensorCache(std::filesystem::path folder, uint64_t max_bytes);

    bool is_used() const { return !folder_.empty(); }
    // A tensor of this shape. An entry that is damaged, has another shape or holds values that are
    // not finite is removed with a warning and counts as absent.
    std::optional<CachedTensor> find(const std::string& key,
                                     const std::array<int64_t, 4>& ne) const;
    // With a text that find gives back. Values that are not finite are not kept. The entries used
    // longest ago make room.
    void store(const std::string& key, const HostTensor& tensor,
               const std::string& note = "") const;

  private:
    std::filesystem::path file_of(const std::string& key) const;
    void make_room(uint64_t bytes) const;

    std::filesystem::path folder_;
    uint64_t max_bytes_;
};

}  // namespace flux2
