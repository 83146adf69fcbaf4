#include "base/file.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <io.h>
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace flux2 {
namespace fs = std::filesystem;
namespace {

void check_is_file(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    check(fs::exists(status), ErrorKind::bad_file, path.string(), ": no such file");
    check(!fs::is_directory(status), ErrorKind::bad_file, path.string(),
          " is a folder; give the name of a file");
    check(fs::is_regular_file(status), ErrorKind::bad_file, path.string(),
          ": is a pipe or a device; copy its contents to a file first");
}

#ifdef _WIN32
std::string last_error() {
    return std::system_category().message(static_cast<int>(GetLastError()));
}
#else
std::string last_error() {
    return std::generic_category().message(errno);
}
#endif

}  // namespace

#ifdef _WIN32

MappedFile::MappedFile(const fs::path& path) : path_(path) {
    check_is_file(path);
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE,
                                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    check(file != INVALID_HANDLE_VALUE, ErrorKind::bad_file, path.string(),
          ": cannot be read: ", last_error());
    LARGE_INTEGER size{};
    GetFileSizeEx(file, &size);
    size_ = static_cast<size_t>(size.QuadPart);
    if (size_ > 0) {
        const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
        if (mapping != nullptr) {
            data_ = static_cast<const std::byte*>(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0));
            CloseHandle(mapping);
        }
    }
    const std::string reason = last_error();
    CloseHandle(file);
    check(size_ == 0 || data_ != nullptr, ErrorKind::bad_file, path.string(),
          ": cannot be mapped into memory: ", reason);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        UnmapViewOfFile(data_);
    }
}

AtomicFile::AtomicFile(const fs::path& final_path)
    : final_path_(final_path),
      temporary_path_(fs::path(final_path) += concat(".partial-", GetCurrentProcessId())) {
    const HANDLE file = CreateFileW(temporary_path_.c_str(), GENERIC_WRITE, 0, nullptr,
                                    CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    check(file != INVALID_HANDLE_VALUE, ErrorKind::bad_file, final_path.string(),
          ": cannot be written: ", last_error());
    handle_ = reinterpret_cast<intptr_t>(file);
}

AtomicFile::~AtomicFile() {
    if (handle_ != -1) {
        CloseHandle(reinterpret_cast<HANDLE>(handle_));
        std::error_code ignored;
        fs::remove(temporary_path_, ignored);
    }
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        OVERLAPPED position{};
        position.Offset = static_cast<DWORD>(offset);
        position.OffsetHigh = static_cast<DWORD>(offset >> 32);
        const DWORD size = static_cast<DWORD>(std::min<size_t>(bytes.size(), 1u << 30));
        DWORD written = 0;
        if (!WriteFile(reinterpret_cast<HANDLE>(handle_), bytes.data(), size, &written,
                       &position)) {
            const bool full = GetLastError() == ERROR_DISK_FULL;
            fail(full ? ErrorKind::out_of_disk : ErrorKind::bad_file, final_path_.string(),
                 ": cannot be written: ", last_error());
        }
        offset += written;
        bytes = bytes.subspan(written);
    }
}

void AtomicFile::commit() {
    check(FlushFileBuffers(reinterpret_cast<HANDLE>(handle_)) != 0, ErrorKind::bad_file,
          final_path_.string(), ": cannot be written to the disk: ", last_error());
    CloseHandle(reinterpret_cast<HANDLE>(handle_));
    handle_ = -1;
    if (!MoveFileExW(temporary_path_.c_str(), final_path_.c_str(), MOVEFILE_REPLACE_EXISTING)) {
        const std::string reason = last_error();
        std::error_code ignored;
        fs::remove(temporary_path_, ignored);
        fail(ErrorKind::bad_file, final_path_.string(), ": cannot be replaced: ", reason);
    }
}

void MappedFile::forget(std::span<const std::byte>) {}

#else

MappedFile::MappedFile(const fs::path& path) : path_(path) {
    check_is_file(path);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0, ErrorKind::bad_file, path.string(), ": cannot be read: ", last_error());
    struct stat status {};
    void* address = MAP_FAILED;
    if (fstat(file, &status) == 0 && status.st_size > 0) {
        size_ = static_cast<size_t>(status.st_size);
        address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    }
    const std::string reason = last_error();
    close(file);
    if (size_ > 0) {
        check(address != MAP_FAILED, ErrorKind::bad_file, path.string(),
              ": cannot be mapped into memory: ", reason);
        data_ = static_cast<const std::byte*>(address);
    }
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        munmap(const_cast<std::byte*>(data_), size_);
    }
}

void MappedFile::forget(std::span<const std::byte> bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t begin = (address + page - 1) / page * page;  // whole pages only
    const uintptr_t end = (address + bytes.size()) / page * page;
    if (begin < end) {
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
}

AtomicFile::AtomicFile(const fs::path& final_path)
    : final_path_(final_path),
      temporary_path_(fs::path(final_path) += concat(".partial-", getpid())) {
    const int file = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    check(file >= 0, ErrorKind::bad_file, final_path.string(),
          ": cannot be written: ", last_error());
    handle_ = file;
}

AtomicFile::~AtomicFile() {
    if (handle_ != -1) {
        close(static_cast<int>(handle_));
        std::error_code ignored;
        fs::remove(temporary_path_, ignored);
    }
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = pwrite(static_cast<int>(handle_), bytes.data(), bytes.size(),
                                       static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            const bool full = errno == ENOSPC || errno == EDQUOT;
            fail(full ? ErrorKind::out_of_disk : ErrorKind::bad_file, final_path_.string(),
                 ": cannot be written: ", last_error());
        }
        offset += static_cast<uint64_t>(written);
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
}

void AtomicFile::commit() {
    check(fsync(static_cast<int>(handle_)) == 0, ErrorKind::bad_file, final_path_.string(),
          ": cannot be written to the disk: ", last_error());
    close(static_cast<int>(handle_));
    handle_ = -1;
    if (std::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) {
        const std::string reason = last_error();
        std::error_code ignored;
        fs::remove(temporary_path_, ignored);
        fail(ErrorKind::bad_file, final_path_.string(), ": cannot be replaced: ", reason);
    }
}

#endif

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

std::string read_text_file(const fs::path& path, size_t max_bytes) {
    check_is_file(path);
    std::error_code error;
    const uintmax_t size = fs::file_size(path, error);
    check(!error && size <= max_bytes, ErrorKind::bad_file, path.string(), ": is ", size,
          " bytes long, at most ", max_bytes, " are expected");
    std::ifstream file(path, std::ios::binary);
    std::string text(static_cast<size_t>(size), '\0');
    file.read(text.data(), static_cast<std::streamsize>(size));
    check(file.good() || size == 0, ErrorKind::bad_file, path.string(), ": cannot be read");
    return text;
}

void AtomicFile::extend_to(uint64_t size) {
    std::error_code error;
    const uintmax_t current = fs::file_size(temporary_path_, error);
    if (!error && current < size) {
        const std::vector<std::byte> zeros(static_cast<size_t>(size - current));
        write_at(current, zeros);
    }
}

void check_free_space(const fs::path& path, uint64_t needed_bytes) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    std::error_code error;
    const fs::space_info space = fs::space(folder, error);
    check(!error, ErrorKind::bad_file, folder.string(), ": no such folder; create it first");
    check(space.available >= needed_bytes, ErrorKind::out_of_disk, path.string(), " needs ",
          needed_bytes, " bytes, but ", folder.string(), " has only ", space.available,
          " free; make room or choose another folder");
}

}  // namespace flux2
