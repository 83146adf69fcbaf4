// Files: memory-mapped reading, and writing that never leaves a partial file under the final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

// What the system says about a file, to notice that it was written to, or another one has its name.
struct FileStamp {
    uint64_t size_bytes = 0;
    int64_t modified = 0;  // in the system's own unit
    uint64_t number = 0;   // of the file on its disk

    bool operator==(const FileStamp&) const = default;
};

// A whole file, read-only, mapped into memory. The bytes stay valid while the object exists, also
// after it was moved.
class MappedFile {
  public:
    // Throws bad_file when the path is missing, a folder, or cannot be read.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::filesystem::path& path() const { return path_; }
    // Of the file that was opened, at that time.
    const FileStamp& stamp() const { return stamp_; }
    // Whether the file was written to since. Another file of its name, or none, is no change of the
    // one that is mapped.
    bool was_overwritten() const;

    // Tells the system that these bytes are not needed soon: their pages are unmapped from this
    // process and read again on the next access.
    static void forget(std::span<const std::byte> bytes);

  private:
    std::filesystem::path path_;
    FileStamp stamp_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// At random, from the system.
uint32_t draw_number();

// A file that is written under a temporary name of its own in the folder of the final name.
// commit() syncs it and renames it to the final name. Without a commit it is deleted, and an
// existing file of the final name is untouched. If the final name is a symbolic link, the link is
// kept and its target is replaced or created. A process that is killed leaves its temporary file;
// the next that writes the same name deletes it (remove_abandoned).
class AtomicFile {
  public:
    // Ends of temporary names are taken from `draw` until a name is free.
    // Throws bad_file when the folder is missing or not writable, and when the final name is a
    // folder, a pipe or a device; bad_argument when it is empty.
    explicit AtomicFile(const std::filesystem::path& final_path,
                        const std::function<uint32_t()>& draw = draw_number);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // May be called from several threads, in any order of offsets. Throws out_of_disk when full.
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    // Fills with zeros up to this size.
    void extend_to(uint64_t size);
    void commit();
    // The same, but only if the final name is not in use. Else returns false and deletes the file;
    // also if another process has just created the name.
    bool commit_new();

    const std::filesystem::path& temporary_path() const { return temporary_path_; }

  private:
    void sync();
    void close();
    void remove_temporary() const;
    // Throws bad_file with the problem and the system's reason.
    [[noreturn]] void give_up(const char* problem) const;

    std::filesystem::path final_path_;
    std::filesystem::path temporary_path_;
    intptr_t handle_ = -1;
};

// Whether this is the name of a temporary file of an AtomicFile, and of one for `final_name` if
// that is not empty. Both are names without folders.
bool is_temporary_name(std::string_view name, std::string_view final_name = {});

// Deletes a temporary file of an AtomicFile, unless a process still writes it: a writer keeps it
// locked (on Windows open) until it has its final name. Returns whether it was deleted. On a file
// system without locks nothing is.
bool remove_abandoned(const std::filesystem::path& temporary);

// Whether the name is a pipe or a device to which bytes are written in order, such as /dev/null or
// a terminal. Standard output (/dev/stdout) always counts as one.
bool is_stream(const std::filesystem::path& path);
bool is_standard_output(const std::filesystem::path& path);

// Writes a whole file as AtomicFile does; to a stream the bytes are written directly. Waits for the
// reader of a pipe. Throws as AtomicFile.
void write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Creates the missing parent folders of a file. Throws bad_file.
void make_folders_for(const std::filesystem::path& file);

// Tests whether a file can be written after a call of make_folders_for; nothing on disk changes but
// that abandoned temporary files of this name are deleted. Throws as AtomicFile.
void check_writable(const std::filesystem::path& file);
// Whether there is a file or folder of this name, and whether it is a folder. A name that is too
// long does not exist. Throw bad_file, with the system's reason, when the system reports an error.
bool file_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// Creates the folder and its missing parents. Throws bad_file, with the system's reason.
void make_folders(const std::filesystem::path& folder);

// The absolute path, without "." and "..". A relative path is returned as it is when the current
// folder does not exist any more.
std::filesystem::path full_path(const std::filesystem::path& path);

// The text of a small file. Throws bad_file when it is missing or larger than max_bytes.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);

// Throws out_of_disk, naming both numbers, when the disk that holds the file has fewer bytes free.
void check_free_space(const std::filesystem::path& file, uint64_t needed_bytes);

}  // namespace flux2
