// A file that grows at its end, and that a later process can continue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace flux2 {

// Every byte of the file up to its size has been written, also when the process is killed.
class GrowingFile {
  public:
    // Opens the file, whose contents are kept, or creates it. Throws bad_file.
    explicit GrowingFile(const std::filesystem::path& path);
    ~GrowingFile();
    GrowingFile(const GrowingFile&) = delete;
    GrowingFile& operator=(const GrowingFile&) = delete;

    uint64_t size() const { return size_; }
    const std::filesystem::path& path() const { return path_; }

    // Throws out_of_disk when the disk is full.
    void append(std::span<const std::byte> bytes);
    // Deletes what it holds.
    void clear();
    // Closes it when all is on the disk.
    void sync_and_close();

  private:
    [[noreturn]] void fail_to_write() const;

    std::filesystem::path path_;
    intptr_t handle_ = -1;
    uint64_t size_ = 0;
};

}  // namespace flux2
