#include "base/growing_file.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#endif

namespace flux2 {

namespace fs = std::filesystem;

#ifdef _WIN32

GrowingFile::GrowingFile(const fs::path& path) : path_(path) {
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_WRITE, FILE_SHARE_READ, nullptr,
                                    OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        fail_to_write();
    }
    handle_ = reinterpret_cast<intptr_t>(file);
    LARGE_INTEGER end{};
    if (SetFilePointerEx(file, {}, &end, FILE_END) == 0) {
        fail_to_write();
    }
    size_ = static_cast<uint64_t>(end.QuadPart);
}

GrowingFile::~GrowingFile() {
    if (handle_ != -1) {
        CloseHandle(reinterpret_cast<HANDLE>(handle_));
    }
}

void GrowingFile::append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const DWORD size = static_cast<DWORD>(std::min<size_t>(bytes.size(), 1u << 30));
        DWORD written = 0;
        if (WriteFile(reinterpret_cast<HANDLE>(handle_), bytes.data(), size, &written, nullptr) ==
            0) {
            fail_to_write();
        }
        size_ += written;
        bytes = bytes.subspan(written);
    }
}

void GrowingFile::clear() {
    const HANDLE file = reinterpret_cast<HANDLE>(handle_);
    if (SetFilePointerEx(file, {}, nullptr, FILE_BEGIN) == 0 || SetEndOfFile(file) == 0) {
        fail_to_write();
    }
    size_ = 0;
}

void GrowingFile::sync_and_close() {
    const HANDLE file = reinterpret_cast<HANDLE>(handle_);
    if (FlushFileBuffers(file) == 0) {
        fail_to_write();
    }
    CloseHandle(file);
    handle_ = -1;
}

void GrowingFile::fail_to_write() const {
    const DWORD error = GetLastError();
    fail(error == ERROR_DISK_FULL ? ErrorKind::out_of_disk : ErrorKind::bad_file, path_.string(),
         ": cannot be written: ", std::system_category().message(static_cast<int>(error)));
}

#else

GrowingFile::GrowingFile(const fs::path& path) : path_(path) {
    handle_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    const off_t end = handle_ < 0 ? -1 : lseek(static_cast<int>(handle_), 0, SEEK_END);
    if (end < 0) {
        fail_to_write();
    }
    size_ = static_cast<uint64_t>(end);
}

GrowingFile::~GrowingFile() {
    if (handle_ != -1) {
        close(static_cast<int>(handle_));
    }
}

void GrowingFile::append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = write(static_cast<int>(handle_), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            fail_to_write();
        }
        size_ += static_cast<uint64_t>(written);
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
}

void GrowingFile::clear() {
    if (ftruncate(static_cast<int>(handle_), 0) != 0 ||
        lseek(static_cast<int>(handle_), 0, SEEK_SET) != 0) {
        fail_to_write();
    }
    size_ = 0;
}

void GrowingFile::sync_and_close() {
    if (fsync(static_cast<int>(handle_)) != 0) {
        fail_to_write();
    }
    close(static_cast<int>(handle_));
    handle_ = -1;
}

void GrowingFile::fail_to_write() const {
    const bool is_full = errno == ENOSPC || errno == EDQUOT;
    fail(is_full ? ErrorKind::out_of_disk : ErrorKind::bad_file, path_.string(),
         ": cannot be written: ", std::generic_category().message(errno));
}

#endif

}  // namespace flux2
