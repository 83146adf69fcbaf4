// Whether downloaded bytes are those that the Hub promises.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flux2::hub {

// A hash that an entity tag of the Hub is: the SHA-256 of a large file, the hash that git gives a
// small one, or nothing that can be checked.
enum class HashKind { none, sha256, git_blob };

HashKind hash_kind(const std::string& etag);

// Hashes a file in a thread of its own while the file grows.
class GrowingHash {
  public:
    // `size` is that of the finished file; a git hash begins with it.
    GrowingHash(std::filesystem::path file, HashKind kind, uint64_t size);
    ~GrowingHash();
    GrowingHash(const GrowingHash&) = delete;
    GrowingHash& operator=(const GrowingHash&) = delete;

    // These bytes were written at the file's end, which is now at `size`. They are hashed from
    // memory; waits while many others do. While the hash is still busy with what was in the file
    // before, they are read from the file later instead.
    void advance(uint64_t size, std::shared_ptr<const std::vector<std::byte>> bytes);
    // The file was here before with so many bytes.
    void start_with(uint64_t size);
    // The hash of the whole file, which has `size` bytes; in lower-case hexadecimal. Throws
    // bad_file when it cannot be read, cancelled when the flag is raised.
    std::string finish(uint64_t size, const std::atomic<bool>* cancel);

  private:
    void run();
    std::string hash_all();
    // What follows the first `done` bytes: as memory, else up to where it has to be read.
    struct Next {
        std::shared_ptr<const std::vector<std::byte>> bytes;
        uint64_t until = 0;
        bool is_last = false;  // nothing follows
    };
    Next wait_beyond(uint64_t done);

    std::filesystem::path file_;
    HashKind kind_;
    uint64_t final_size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t size_ = 0;
    std::map<uint64_t, std::shared_ptr<const std::vector<std::byte>>> waiting_;  // by their begin
    uint64_t waiting_bytes_ = 0;
    bool is_near_end_ = false;  // the hash is at what waits in memory
    bool is_whole_ = false;
    std::atomic<bool> is_over_ = false;
    bool has_result_ = false;
    std::string result_;
    std::string problem_;
    std::thread thread_;
};

}  // namespace flux2::hub
