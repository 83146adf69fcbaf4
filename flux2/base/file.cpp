#include "base/file.hpp"

#include "base/check.hpp"
#include "base/text_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <optional>
#include <random>
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
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace flux2 {
namespace fs = std::filesystem;
namespace {

// Follows links; not_found for names that nothing can have.
fs::file_status status_of(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found || error == std::errc::filename_too_long) {
        return fs::file_status(fs::file_type::not_found);
    }
    check(!error, ErrorKind::bad_file, path.string(), ": cannot be looked at: ", error.message());
    return status;
}

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

bool disk_is_full() {
    return GetLastError() == ERROR_DISK_FULL;
}

// Creates a file that was not there; -1 when it cannot be.
intptr_t create_new(const fs::path& path) {
    // Sharing lets the file be renamed while it is open.
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_WRITE, FILE_SHARE_DELETE, nullptr,
                                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr);
    return file == INVALID_HANDLE_VALUE ? -1 : reinterpret_cast<intptr_t>(file);
}

bool name_was_taken() {
    return GetLastError() == ERROR_FILE_EXISTS;
}

FileStamp stamp_of(HANDLE file) {
    BY_HANDLE_FILE_INFORMATION facts{};
    GetFileInformationByHandle(file, &facts);
    const auto joined = [](DWORD high, DWORD low) { return uint64_t{high} << 32 | low; };
    return {joined(facts.nFileSizeHigh, facts.nFileSizeLow),
            static_cast<int64_t>(
                joined(facts.ftLastWriteTime.dwHighDateTime, facts.ftLastWriteTime.dwLowDateTime)),
            joined(facts.nFileIndexHigh, facts.nFileIndexLow)};
}

// Nothing when there is no such file.
std::optional<FileStamp> find_stamp(const fs::path& path) {
    constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    const HANDLE file = CreateFileW(path.c_str(), 0, kShared, nullptr, OPEN_EXISTING, 0, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return std::nullopt;
    }
    const FileStamp stamp = stamp_of(file);
    CloseHandle(file);
    return stamp;
}
#else
constexpr const char* kStandardOutput = "/dev/stdout";

std::string last_error() {
    return std::generic_category().message(errno);
}

bool disk_is_full() {
    return errno == ENOSPC || errno == EDQUOT;
}

// Creates a file that was not there, locked where the file system has locks; -1 when it cannot be.
intptr_t create_new(const fs::path& path) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) {
        return -1;
    }
    // Another process may have taken it for abandoned before it was locked.
    struct stat status {};
    const bool taken = flock(file, LOCK_EX | LOCK_NB) != 0
                           ? errno == EWOULDBLOCK
                           : fstat(file, &status) == 0 && status.st_nlink == 0;
    if (taken) {
        close(file);
        errno = EEXIST;
        return -1;
    }
    return file;
}

bool name_was_taken() {
    return errno == EEXIST;
}

FileStamp stamp_of(const struct stat& status) {
#ifdef __APPLE__
    const timespec& modified = status.st_mtimespec;
#else
    const timespec& modified = status.st_mtim;
#endif
    return {static_cast<uint64_t>(status.st_size),
            int64_t{modified.tv_sec} * 1'000'000'000 + modified.tv_nsec,
            static_cast<uint64_t>(status.st_ino)};
}

// Nothing when there is no such file.
std::optional<FileStamp> find_stamp(const fs::path& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? std::optional(stamp_of(status)) : std::nullopt;
}
#endif

[[noreturn]] void fail_to_write(const fs::path& path) {
    fail(disk_is_full() ? ErrorKind::out_of_disk : ErrorKind::bad_file, path.string(),
         ": cannot be written: ", last_error());
}

// The target of a symbolic link; the path itself when it is not a link.
fs::path behind_links(fs::path path) {
    constexpr int kMaxLinks = 40;  // as many as Linux follows
    for (int i = 0; i < kMaxLinks; ++i) {
        std::error_code error;
        const fs::path target = fs::read_symlink(path, error);
        if (error) {
            return path;
        }
        path = path.parent_path() / target;
    }
    fail(ErrorKind::bad_file, path.string(), ": is a symbolic link that leads back to itself");
}

void check_replaceable(const fs::path& path) {
    check(!path.empty(), ErrorKind::bad_argument, "a file to write has an empty name; name one");
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    check(path.has_filename() && !fs::is_directory(status), ErrorKind::bad_file, path.string(),
          ": is a folder; give the name of a file");
    check((!fs::exists(status) || fs::is_regular_file(status)) && !is_stream(path),
          ErrorKind::bad_file, path.string(),
          ": is a pipe or a device, which cannot be replaced by a file; give the name of a file");
}

constexpr std::string_view kTemporaryMark = ".partial-";
constexpr size_t kTemporaryDigits = 8;

fs::path temporary_name(const fs::path& path, uint32_t number) {
    TextStream suffix;
    suffix << kTemporaryMark << std::hex << std::setfill('0') << std::setw(kTemporaryDigits)
           << number;
    return fs::path(path) += suffix.str();
}

// What killed processes left of this file.
void remove_abandoned_beside(const fs::path& final_path) {
    const fs::path folder = final_path.has_parent_path() ? final_path.parent_path() : ".";
    const std::string name = final_path.filename().string();
    std::error_code ignored;
    for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
        if (is_temporary_name(entry->path().filename().string(), name)) {
            remove_abandoned(entry->path());
        }
    }
}

}  // namespace

uint32_t draw_number() {
    return std::random_device{}();
}

AtomicFile::AtomicFile(const fs::path& final_path, const std::function<uint32_t()>& draw) {
    constexpr int kMaxNames = 100;
    check_replaceable(final_path);
    final_path_ = behind_links(final_path);
    remove_abandoned_beside(final_path_);
    for (int i = 0; handle_ == -1 && (i == 0 || (name_was_taken() && i < kMaxNames)); ++i) {
        temporary_path_ = temporary_name(final_path_, draw());
        handle_ = create_new(temporary_path_);
    }
    if (handle_ == -1) {
        fail_to_write(final_path_);
    }
}

void AtomicFile::remove_temporary() const {
    std::error_code ignored;
    fs::remove(temporary_path_, ignored);
}

bool is_temporary_name(std::string_view name, std::string_view final_name) {
    const size_t ending = kTemporaryMark.size() + kTemporaryDigits;
    if (name.size() <= ending) {
        return false;
    }
    const std::string_view start = name.substr(0, name.size() - ending);
    const std::string_view digits = name.substr(name.size() - kTemporaryDigits);
    return name.substr(start.size()).starts_with(kTemporaryMark) &&
           digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
           (final_name.empty() || start == final_name);
}

void AtomicFile::give_up(const char* problem) const {
    const std::string reason = last_error();
    remove_temporary();
    fail(ErrorKind::bad_file, final_path_.string(), problem, reason);
}

#ifdef _WIN32

MappedFile::MappedFile(const fs::path& path) : path_(path) {
    check_is_file(path);
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE,
                                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    check(file != INVALID_HANDLE_VALUE, ErrorKind::bad_file, path.string(),
          ": cannot be read: ", last_error());
    stamp_ = stamp_of(file);
    size_ = static_cast<size_t>(stamp_.size_bytes);
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

bool remove_abandoned(const fs::path& temporary) {
    // Cannot be opened while anybody else has it open.
    const HANDLE file =
        CreateFileW(temporary.c_str(), DELETE, 0, nullptr, OPEN_EXISTING,
                    FILE_FLAG_DELETE_ON_CLOSE | FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return false;
    }
    CloseHandle(file);
    return true;
}

AtomicFile::~AtomicFile() {
    if (handle_ != -1) {
        close();
        remove_temporary();
    }
}

void AtomicFile::close() {
    CloseHandle(reinterpret_cast<HANDLE>(handle_));
    handle_ = -1;
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
            fail_to_write(final_path_);
        }
        offset += written;
        bytes = bytes.subspan(written);
    }
}

void AtomicFile::sync() {
    if (FlushFileBuffers(reinterpret_cast<HANDLE>(handle_)) == 0) {
        fail_to_write(final_path_);
    }
}

void AtomicFile::commit() {
    sync();
    if (!MoveFileExW(temporary_path_.c_str(), final_path_.c_str(), MOVEFILE_REPLACE_EXISTING)) {
        give_up(": cannot be replaced: ");
    }
    close();
}

bool AtomicFile::commit_new() {
    sync();
    if (MoveFileExW(temporary_path_.c_str(), final_path_.c_str(), 0)) {
        close();
        return true;
    }
    const DWORD error = GetLastError();
    if (error != ERROR_ALREADY_EXISTS && error != ERROR_FILE_EXISTS) {
        give_up(": cannot be written: ");
    }
    close();
    remove_temporary();
    return false;
}

bool is_stream(const fs::path& path) {
    constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    const HANDLE file = CreateFileW(path.c_str(), 0, kShared, nullptr, OPEN_EXISTING, 0, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return false;
    }
    const DWORD type = GetFileType(file);
    CloseHandle(file);
    return type == FILE_TYPE_CHAR || type == FILE_TYPE_PIPE;
}

bool is_standard_output(const fs::path&) {
    return false;
}

namespace {

void write_stream(const fs::path& path, std::span<const std::byte> bytes) {
    const HANDLE file = CreateFileW(path.c_str(), GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    bool good = file != INVALID_HANDLE_VALUE;
    while (good && !bytes.empty()) {
        const DWORD size = static_cast<DWORD>(std::min<size_t>(bytes.size(), 1u << 30));
        DWORD written = 0;
        good = WriteFile(file, bytes.data(), size, &written, nullptr) != 0;
        bytes = bytes.subspan(written);
    }
    const DWORD error = GetLastError();
    if (file != INVALID_HANDLE_VALUE) {
        CloseHandle(file);
    }
    if (!good) {
        SetLastError(error);
        fail_to_write(path);
    }
}

}  // namespace

void MappedFile::forget(std::span<const std::byte>) {}

#else

MappedFile::MappedFile(const fs::path& path) : path_(path) {
    check_is_file(path);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0, ErrorKind::bad_file, path.string(), ": cannot be read: ", last_error());
    struct stat status {};
    void* address = MAP_FAILED;
    if (fstat(file, &status) == 0) {
        stamp_ = stamp_of(status);
        size_ = static_cast<size_t>(stamp_.size_bytes);
    }
    if (size_ > 0) {
        address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    }
    const ErrorKind kind = errno == ENOMEM ? ErrorKind::out_of_memory : ErrorKind::bad_file;
    const std::string reason = last_error();
    close(file);
    if (size_ > 0) {
        check(address != MAP_FAILED, kind, path.string(),
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

bool remove_abandoned(const fs::path& temporary) {
    const int file = open(temporary.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    struct stat status {};
    const bool abandoned =
        fstat(file, &status) == 0 && S_ISREG(status.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0;
    const bool removed = abandoned && unlink(temporary.c_str()) == 0;
    close(file);
    return removed;
}

AtomicFile::~AtomicFile() {
    if (handle_ != -1) {
        remove_temporary();
        close();
    }
}

void AtomicFile::close() {
    ::close(static_cast<int>(handle_));
    handle_ = -1;
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = pwrite(static_cast<int>(handle_), bytes.data(), bytes.size(),
                                       static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            fail_to_write(final_path_);
        }
        offset += static_cast<uint64_t>(written);
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
}

void AtomicFile::sync() {
    if (fsync(static_cast<int>(handle_)) != 0) {
        fail_to_write(final_path_);
    }
}

void AtomicFile::commit() {
    sync();
    if (std::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) {
        give_up(": cannot be replaced: ");
    }
    close();
}

bool AtomicFile::commit_new() {
    sync();
    if (link(temporary_path_.c_str(), final_path_.c_str()) == 0) {
        remove_temporary();
        close();
        return true;
    }
    // The name exists, or the file system has no hard links; then check for the name and rename.
    std::error_code ignored;
    if (errno == EEXIST || fs::exists(final_path_, ignored)) {
        remove_temporary();
        close();
        return false;
    }
    if (std::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) {
        give_up(": cannot be written: ");
    }
    close();
    return true;
}

bool is_standard_output(const fs::path& path) {
    return path == kStandardOutput;
}

bool is_stream(const fs::path& path) {
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    return is_standard_output(path) || fs::is_fifo(status) || fs::is_character_file(status);
}

namespace {

void write_stream(const fs::path& path, std::span<const std::byte> bytes) {
    const int file = is_standard_output(path) ? dup(STDOUT_FILENO)
                                              : open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    bool good = file >= 0;
    while (good && !bytes.empty()) {
        const ssize_t written = write(file, bytes.data(), bytes.size());
        good = written >= 0 || errno == EINTR;
        bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(written, 0)));
    }
    const int error = errno;
    if (file >= 0) {
        close(file);
    }
    if (!good) {
        errno = error;
        fail_to_write(path);
    }
}

}  // namespace

#endif

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      stamp_(other.stamp_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(stamp_, other.stamp_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

bool MappedFile::was_overwritten() const {
    const std::optional<FileStamp> now = find_stamp(path_);
    return now && now->number == stamp_.number && *now != stamp_;
}

bool file_exists(const fs::path& path) {
    return fs::exists(status_of(path));
}

bool is_folder(const fs::path& path) {
    return fs::is_directory(status_of(path));
}

void make_folders(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    check(!error, ErrorKind::bad_file, folder.string(),
          ": the folder cannot be made: ", error.message());
}

fs::path full_path(const fs::path& path) {
    std::error_code error;
    const fs::path full = fs::absolute(path, error);
    return (error ? path : full).lexically_normal();
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

void make_folders_for(const fs::path& file) {
    const fs::path folder = behind_links(file).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !fs::is_directory(folder, ignored)) {
        make_folders(folder);
    }
}

void check_writable(const fs::path& file) {
    check_replaceable(file);
    const fs::path path = behind_links(file);
    std::error_code ignored;
    std::vector<fs::path> missing;  // names that do not exist in `folder` yet, the file's first
    fs::path folder = path.parent_path();
    for (missing.push_back(path.filename()); !folder.empty() && !fs::exists(folder, ignored);
         folder = folder.parent_path()) {
        missing.push_back(folder.filename());
    }
    check(folder.empty() || fs::is_directory(folder, ignored), ErrorKind::bad_file, file.string(),
          ": cannot be written: ", folder.string(), " is no folder");
    // A name that no file can have cannot be a folder's either. A name that exists in `folder`
    // already is valid.
    for (const fs::path& name : missing) {
        if (missing.size() == 1 || !fs::exists(folder / name, ignored)) {
            const AtomicFile probe(folder / name);
        }
    }
}

void write_whole_file(const fs::path& path, std::span<const std::byte> bytes) {
    if (is_stream(path)) {
        write_stream(path, bytes);
        return;
    }
    AtomicFile file(path);
    file.write_at(0, bytes);
    file.commit();
}

void check_free_space(const fs::path& file, uint64_t needed_bytes) {
    const fs::path path = behind_links(file);
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    std::error_code error;
    const fs::space_info space = fs::space(folder, error);
    check(!error, ErrorKind::bad_file, folder.string(), ": no such folder; create it first");
    check(space.available >= needed_bytes, ErrorKind::out_of_disk, path.string(), " needs ",
          needed_bytes, " bytes, but ", folder.string(), " has only ", space.available,
          " free; make room or choose another folder");
}

}  // namespace flux2
