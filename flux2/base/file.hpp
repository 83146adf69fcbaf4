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

// A file under a temporary name beside the final one, which no other process has. commit() syncs it
// and renames it over the final name; without a commit it is deleted, and whatever stood under the
// final name is untouched. A final name that is a symbolic link stays one: the file it leads to is
// replaced, or made.
class AtomicFile {
  public:
    // Throws bad_file when the folder is missing or not writable, and when the final name is a
    // folder, a pipe or a device; bad_argument when it is empty.
    explicit AtomicFile(const std::filesystem::path& final_path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // May be called from several threads, in any order of offsets. Throws out_of_disk when full.
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    // Fills with zeros up to this size.
    void extend_to(uint64_t size);
    void commit();
    // The same where nothing has the final name yet. Returns false, and deletes the file, when
    // something has, be it since a moment ago.
    bool commit_new();

    const std::filesystem::path& temporary_path() const { return temporary_path_; }

  private:
    void finish_writing();
    void remove_temporary() const;
    // Throws bad_file: the problem and the system's reason for it.
    [[noreturn]] void give_up(const char* problem) const;

    std::filesystem::path final_path_;
    std::filesystem::path temporary_path_;
    intptr_t handle_ = -1;
};

// Whether a name is that of a pipe or of a device that takes bytes as they come, such as /dev/null
// or a terminal. Standard output (/dev/stdout) counts whatever it leads to.
bool is_stream(const std::filesystem::path& path);
bool is_standard_output(const std::filesystem::path& path);

// Writes a file at once, as AtomicFile does; a stream takes the bytes and stays what it is. Waits
// for the reader of a pipe. Throws as AtomicFile.
void write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Makes the folders above a file that are missing. Throws bad_file.
void make_folders_for(const std::filesystem::path& file);

// Tries whether a file can be written, once make_folders_for was called; leaves no trace. Throws as
// AtomicFile.
void check_writable(const std::filesystem::path& file);
// Whether there is a file or folder of this name, and whether it is a folder. Nothing has a name
// that is too long. Throw bad_file, with the system's reason, when it cannot be told.
bool file_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Makes the folder and those above it that are missing. Throws bad_file, with the system's reason.
void make_folders(const std::filesystem::path& folder);

// The path from the root on, without "." and "..". One that is relative stays so when the current
// folder is gone.
std::filesystem::path full_path(const std::filesystem::path& path);

// The text of a small file. Throws bad_file when it is missing or larger than max_bytes.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);

// Throws out_of_disk, naming both numbers, when the disk that holds the file has fewer bytes free.
void check_free_space(const std::filesystem::path& file, uint64_t needed_bytes);

}  // namespace flux2
