// Tensors that took time to compute, kept in a folder of bounded size between runs of the program.
#pragma once

#include "base/host_tensor.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

class TensorSource;

struct CachedTensor {
    HostTensor value;
    std::string note;
};

// Entries are found by their whole key, which is stored with them and a checksum. If the folder
// cannot be used, the cache is empty and a warning is logged; that is never an error.
class TensorCache {
  public:
    // An empty folder name: no cache. Deletes what killed processes left unfinished in the folder.
    TensorCache(std::filesystem::path folder, uint64_t max_bytes);

    bool is_used() const { return !folder_.empty(); }
    // A tensor of this shape. An entry that is damaged, has another shape or holds values that are
    // not finite is removed with a warning and counts as absent.
    std::optional<CachedTensor> find(const std::string& key,
                                     const std::array<int64_t, 4>& ne) const;
    // `note` is stored too and returned by find. Values that are not finite are not stored. The
    // least recently used entries are removed to make room.
    void store(const std::string& key, const HostTensor& tensor,
               const std::string& note = "") const;
    // The same for what a network has computed. When one of its files was written to since it was
    // opened nothing is stored, since the tensor may belong to neither contents, and a warning is
    // logged.
    void store_result_of(const TensorSource& weights, const std::string& key,
                         const HostTensor& tensor, const std::string& note = "") const;

  private:
    struct Entry {
        std::filesystem::file_time_type used;
        std::filesystem::path file;
        uint64_t bytes;
    };
    struct Contents {
        std::vector<Entry> entries;
        uint64_t bytes = 0;  // of the entries and of files that are being written
    };

    Contents read_folder() const;
    std::filesystem::path file_of(const std::string& key) const;
    void make_room(uint64_t bytes) const;

    std::filesystem::path folder_;
    uint64_t max_bytes_;
};

}  // namespace flux2
