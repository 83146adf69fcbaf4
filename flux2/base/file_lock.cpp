#include "base/file_lock.hpp"

#include "base/check.hpp"
#include "base/file.hpp"

#include <chrono>
#include <system_error>
#include <thread>

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#endif

namespace flux2 {

namespace fs = std::filesystem;

FileLock::FileLock(const fs::path& path, const std::function<void()>& waiting) : path_(path) {
    make_folders_for(path);
    while (!try_lock()) {
        waiting();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

FileLock::~FileLock() {
    release();
}

#ifdef _WIN32

bool FileLock::try_lock() {
    constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    const HANDLE file = CreateFileW(path_.c_str(), GENERIC_READ | GENERIC_WRITE, kShared, nullptr,
                                    OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    check(
        file != INVALID_HANDLE_VALUE, ErrorKind::bad_file, path_.string(),
        ": cannot be written: ", std::system_category().message(static_cast<int>(GetLastError())));
    if (LockFile(file, 0, 0, 1, 0) == 0) {
        CloseHandle(file);
        return false;
    }
    handle_ = reinterpret_cast<intptr_t>(file);
    return true;
}

void FileLock::release() {
    if (handle_ != -1) {
        UnlockFile(reinterpret_cast<HANDLE>(handle_), 0, 0, 1, 0);
        CloseHandle(reinterpret_cast<HANDLE>(handle_));
        handle_ = -1;
    }
}

#else

bool FileLock::try_lock() {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    check(file >= 0, ErrorKind::bad_file, path_.string(),
          ": cannot be written: ", std::generic_category().message(errno));
    const bool held = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!held && (errno == EWOULDBLOCK || errno == EINTR)) {
        close(file);
        return false;
    }
    // Its holder may have deleted the file before it let go: then this lock is nobody's.
    struct stat locked {};
    struct stat named {};
    if (held && (fstat(file, &locked) != 0 || stat(path_.c_str(), &named) != 0 ||
                 locked.st_ino != named.st_ino)) {
        close(file);
        return false;
    }
    handle_ = file;
    return true;
}

void FileLock::release() {
    if (handle_ != -1) {
        close(static_cast<int>(handle_));
        handle_ = -1;
    }
}

#endif

}  // namespace flux2
