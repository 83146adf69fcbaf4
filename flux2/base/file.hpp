// Files: memory-mapped reading, and writing that never leaves half a file under the final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace flux2 {

// A whole file, read-only, mapped into memory. Bytes stay valid while the object lives, moves
// included.
class MappedFile {
  public:
    // Throws bad_file when the path is missing, a folder, or cannot be read.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::filesystem::path& path() const { return path_; }

    // Tells the system that these bytes are not needed soon: their pages leave this process and
    // come back when they are read again.
    static void forget(std::span<const std::byte> bytes);

  private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// A file under a temporary name beside the final one. commit() syncs it and renames it over the
// final name; without a commit it is deleted, and whatever stood under the final name is untouched.
class AtomicFile {
  public:
    // Throws bad_file when the folder is missing or not writable.
    explicit AtomicFile(const std::filesystem::path& final_path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // May be called from several threads, in any order of offsets. Throws out_of_disk when full.
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    // Fills with zeros up to this size.
    void extend_to(uint64_t size);
    void commit();

    const std::filesystem::path& temporary_path() const { return temporary_path_; }

  private:
    std::filesystem::path final_path_;
    std::filesystem::path temporary_path_;
    intptr_t handle_ = -1;
};

// The text of a small file. Throws bad_file when it is missing or larger than max_bytes.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);

// Throws out_of_disk, naming both numbers, when the disk that holds path has fewer bytes free.
void check_free_space(const std::filesystem::path& path, uint64_t needed_bytes);

}  // namespace flux2
