// A lock between processes, in the form of a file that one of them holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace flux2 {

// Holds the file while it exists; the system ends that also when the process dies. The file stays
// where it is. It is the lock that Python's filelock takes (flock, on Windows the first byte). On a
// file system without locks nothing is held.
class FileLock {
  public:
    // Creates the file and its folders, and waits until nobody else holds it. `waiting` is called
    // about every 50 ms meanwhile and may throw. Throws bad_file when the file cannot be made.
    FileLock(const std::filesystem::path& path, const std::function<void()>& waiting);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    // Whether the lock was taken, or cannot be taken by anybody.
    bool try_lock();
    void release();

    std::filesystem::path path_;
    intptr_t handle_ = -1;
};

}  // namespace flux2
