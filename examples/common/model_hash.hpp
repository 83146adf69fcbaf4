// SHA-256 of model files and adapters, computed in the background and cached for files that did not
// change.
#pragma once

#include <flux2/flux2.hpp>

#include <atomic>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>
#include <vector>

namespace flux2::cli {

// Any thread may call its functions.
class ModelHashes {
  public:
    struct Hash {
        std::string text;     // empty when the file cannot be read
        std::string trouble;  // why it is empty or not cached; else empty
    };

    // Starts hashing the files that are not in the cache in `cache_folder` (empty: no cache).
    ModelHashes(const ModelFiles& files, std::filesystem::path cache_folder);
    ~ModelHashes();  // stops hashing
    ModelHashes(const ModelHashes&) = delete;
    ModelHashes& operator=(const ModelHashes&) = delete;

    // Starts hashing one more file, unless it is among them.
    void add(const std::filesystem::path& path);

    // The hash of one of the files; waits for it. Empty for an empty path, and, with a warning, for
    // a file that cannot be read.
    std::string get(const std::filesystem::path& path);
    // The same without waiting and warnings: empty also while it is computed.
    std::string find(const std::filesystem::path& path) const;

  private:
    struct Entry {
        std::filesystem::path path;
        std::shared_future<Hash> hash;
    };

    // Of the file; not valid when it was not added.
    std::shared_future<Hash> future_of(const std::filesystem::path& path) const;

    std::filesystem::path memory_;  // the file of cached hashes
    std::atomic<bool> stop_ = false;
    mutable std::mutex mutex_;  // of the entries
    std::vector<Entry> entries_;
};

}  // namespace flux2::cli
