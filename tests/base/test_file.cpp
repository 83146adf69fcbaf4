#include "base/file.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#ifndef _WIN32
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

namespace fs = std::filesystem;
using namespace flux2;
using namespace flux2::test;

TEST_CASE("a mapped file shows the bytes of the file") {
    const TemporaryFolder folder;
    write_file(folder / "data", "twelve bytes");
    const MappedFile file(folder / "data");
    CHECK(Bytes(file.bytes().begin(), file.bytes().end()) == bytes_of("twelve bytes"));
    CHECK(file.path() == folder / "data");
}

TEST_CASE("a mapped file knows when it was opened, and whether it was written to since") {
    const TemporaryFolder folder;
    const fs::path path = folder / "data";
    write_file(path, "twelve bytes");
    const auto time = fs::last_write_time(path);
    const MappedFile file(path);
    CHECK(file.stamp().size_bytes == 12);
    CHECK(file.stamp() == MappedFile(path).stamp());
    CHECK_FALSE(file.was_overwritten());
    // Another file of the same name, size and time is no change of the one that is mapped.
    write_file(folder / "other", "twelve BYTES");
    fs::last_write_time(folder / "other", time);
    fs::rename(folder / "other", path);
    const MappedFile other(path);
    CHECK(other.stamp() != file.stamp());
    CHECK_FALSE(file.was_overwritten());
    CHECK(Bytes(file.bytes().begin(), file.bytes().end()) == bytes_of("twelve bytes"));
    // Other bytes in the same file are.
    write_file(path, "TWELVE bytes");
    fs::last_write_time(path, time + std::chrono::seconds(2));
    CHECK(other.was_overwritten());
    CHECK_FALSE(file.was_overwritten());
    CHECK_FALSE(MappedFile(path).was_overwritten());
    fs::remove(path);
    CHECK_FALSE(other.was_overwritten());
}

TEST_CASE("what exists is told, and what cannot be told is an error with the system's reason") {
    const TemporaryFolder folder;
    write_file(folder / "file", "x");
    CHECK(file_exists(folder / "file"));
    CHECK(file_exists(folder.path()));
    CHECK(is_folder(folder.path()));
    CHECK_FALSE(is_folder(folder / "file"));
    for (const fs::path& absent :
         {folder / "none", folder / "file" / "below", folder / std::string(300, 'a'),
          folder / std::string(5000, 'a') / "b", fs::path()}) {
        CHECK_FALSE(file_exists(absent));
        CHECK_FALSE(is_folder(absent));
    }
#ifndef _WIN32
    fs::create_symlink(folder / "loop", folder / "loop");
    const auto error = error_of([&] { file_exists(folder / "loop"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("loop: cannot be looked at: "));
#endif
}

TEST_CASE("folders are made with those above them, but not over a file") {
    const TemporaryFolder folder;
    make_folders(folder / "a" / "b");
    CHECK(is_folder(folder / "a" / "b"));
    CHECK_NOTHROW(make_folders(folder / "a" / "b"));
    write_file(folder / "file", "x");
    const auto error = error_of([&] { make_folders(folder / "file" / "below"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("the folder cannot be made: "));
}

TEST_CASE("a full path has neither dots nor the current folder left to guess") {
    CHECK(full_path("x") == fs::current_path() / "x");
    CHECK(full_path("a/../x") == fs::current_path() / "x");
    const TemporaryFolder folder;
    CHECK(full_path(folder / "." / "x") == folder / "x");
}

TEST_CASE("the bytes of a mapped file stay where they are when it moves") {
    const TemporaryFolder folder;
    write_file(folder / "a", "first");
    write_file(folder / "b", "second");
    MappedFile a(folder / "a");
    const std::byte* data = a.bytes().data();
    MappedFile moved(std::move(a));
    CHECK(moved.bytes().data() == data);
    MappedFile b(folder / "b");
    b = std::move(moved);
    CHECK(b.bytes().data() == data);
    CHECK(b.bytes().size() == 5);
    CHECK(b.path() == folder / "a");
}

TEST_CASE("bytes that were let go of are there again when they are read") {
    const TemporaryFolder folder;
    std::string text;
    while (text.size() < 300'000) {
        text += std::to_string(text.size()) + " ";
    }
    write_file(folder / "a", text);
    const MappedFile file(folder / "a");
    MappedFile::forget(file.bytes());
    MappedFile::forget(file.bytes().subspan(5, 3));  // less than a page: nothing happens
    CHECK(Bytes(file.bytes().begin(), file.bytes().end()) == bytes_of(text));
}

TEST_CASE("an empty file maps to no bytes") {
    const TemporaryFolder folder;
    write_file(folder / "empty", "");
    CHECK(MappedFile(folder / "empty").bytes().empty());
}

TEST_CASE("mapping a missing file is refused by name") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { MappedFile(folder / "nothing.gguf"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions((folder / "nothing.gguf").string()));
    CHECK(error.mentions("no such file"));
}

TEST_CASE("mapping a path below a file is refused by name") {
    const TemporaryFolder folder;
    write_file(folder / "file", "x");
    const auto error = error_of([&] { MappedFile(folder / "file/below"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions((folder / "file/below").string()));
}

TEST_CASE("mapping a folder is refused by name") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { MappedFile(folder.path()); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions(folder.path().string()));
    CHECK(error.mentions("folder"));
}

TEST_CASE("a committed file replaces the old one and leaves no temporary") {
    const TemporaryFolder folder;
    write_file(folder / "out", "old and longer");
    {
        AtomicFile file(folder / "out");
        file.write_at(0, bytes_of("new"));
        CHECK(read_file(folder / "out") == bytes_of("old and longer"));
        file.commit();
    }
    CHECK(read_file(folder / "out") == bytes_of("new"));
    CHECK(folder.names() == std::vector<std::string>{"out"});
}

TEST_CASE("a file that is not committed leaves the old one whole and no temporary") {
    const TemporaryFolder folder;
    write_file(folder / "out", "old");
    {
        AtomicFile file(folder / "out");
        file.write_at(0, bytes_of("half of the new"));
        CHECK(fs::exists(file.temporary_path()));
        CHECK(file.temporary_path().parent_path() == folder.path());
    }
    CHECK(read_file(folder / "out") == bytes_of("old"));
    CHECK(folder.names() == std::vector<std::string>{"out"});
}

TEST_CASE("writes land at their offsets in any order and gaps are zeros") {
    const TemporaryFolder folder;
    {
        AtomicFile file(folder / "out");
        file.write_at(6, bytes_of("end"));
        file.write_at(0, bytes_of("start"));
        file.extend_to(12);
        file.extend_to(4);  // never shorter
        file.commit();
    }
    CHECK(read_file(folder / "out") == bytes_of(std::string("start\0end\0\0\0", 12)));
}

TEST_CASE("several threads write one file") {
    const TemporaryFolder folder;
    constexpr size_t kThreads = 4;
    constexpr size_t kBytes = 10'000;
    {
        AtomicFile file(folder / "out");
        std::vector<std::thread> threads;
        for (size_t i = 0; i < kThreads; ++i) {
            threads.emplace_back([&file, i] {
                const Bytes part(kBytes, static_cast<std::byte>(i + 1));
                file.write_at(i * kBytes, part);
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        file.commit();
    }
    Bytes expected;
    for (size_t i = 0; i < kThreads; ++i) {
        expected.insert(expected.end(), kBytes, static_cast<std::byte>(i + 1));
    }
    CHECK(read_file(folder / "out") == expected);
}

TEST_CASE("writing into a folder that does not exist is refused") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { AtomicFile(folder / "absent/out"); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions((folder / "absent/out").string()));
}

TEST_CASE("two writers of one name do not share a temporary file") {
    const TemporaryFolder folder;
    AtomicFile first(folder / "out");
    AtomicFile second(folder / "out");
    CHECK(first.temporary_path() != second.temporary_path());
    first.write_at(0, bytes_of("from the first"));
    second.write_at(0, bytes_of("second"));
    first.commit();
    CHECK(read_file(folder / "out") == bytes_of("from the first"));
    second.commit();
    CHECK(read_file(folder / "out") == bytes_of("second"));
    CHECK(folder.names() == std::vector<std::string>{"out"});
}

TEST_CASE("a temporary name that is taken, by a file or a link, is left alone") {
    const TemporaryFolder folder;
    const AtomicFile other(folder / "out", [] { return 1u; });
    write_file(folder / "target", "kept");
    fs::create_symlink(folder / "target", folder / "out.partial-00000002");
    uint32_t number = 0;
    AtomicFile file(folder / "out", [&] { return ++number; });
    CHECK(file.temporary_path() == folder / "out.partial-00000003");
    file.write_at(0, bytes_of("ours"));
    file.commit();
    CHECK(read_file(folder / "out") == bytes_of("ours"));
    CHECK(fs::exists(other.temporary_path()));
    CHECK(read_file(folder / "target") == bytes_of("kept"));
}

TEST_CASE("a new file takes a free name and leaves a taken one alone") {
    const TemporaryFolder folder;
    const auto put = [&](const char* text) {
        AtomicFile file(folder / "out");
        file.write_at(0, bytes_of(text));
        return file.commit_new();
    };
    CHECK(put("first"));
    CHECK_FALSE(put("second"));
    CHECK(read_file(folder / "out") == bytes_of("first"));
    CHECK(folder.names() == std::vector<std::string>{"out"});
}

TEST_CASE("of many writers that want one new name, one gets it") {
    const TemporaryFolder folder;
    std::vector<std::future<bool>> writers;
    for (size_t i = 0; i < 8; ++i) {
        writers.push_back(std::async(std::launch::async, [&folder] {
            AtomicFile file(folder / "out");
            file.write_at(0, bytes_of("whole"));
            return file.commit_new();
        }));
    }
    int n_written = 0;
    for (std::future<bool>& writer : writers) {
        n_written += writer.get() ? 1 : 0;
    }
    CHECK(n_written == 1);
    CHECK(folder.names() == std::vector<std::string>{"out"});
}

TEST_CASE("a symbolic link stays, the file it leads to is replaced") {
    const TemporaryFolder folder;
    fs::create_directory(folder / "below");
    write_file(folder / "below/file", "old");
    fs::create_symlink("below/file", folder / "link");
    fs::create_symlink("link", folder / "second");
    fs::create_symlink("below/new", folder / "dangling");
    fs::create_symlink("loop", folder / "loop");
    write_whole_file(folder / "second", bytes_of("new"));
    CHECK(fs::is_symlink(folder / "second"));
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(read_file(folder / "below/file") == bytes_of("new"));
    write_whole_file(folder / "dangling", bytes_of("made"));
    CHECK(fs::is_symlink(folder / "dangling"));
    CHECK(read_file(folder / "below/new") == bytes_of("made"));
    CHECK(error_of([&] { AtomicFile(folder / "loop"); }).kind == ErrorKind::bad_file);
}

TEST_CASE("a folder is refused before anything is written to it") {
    const TemporaryFolder folder;
    fs::create_directory(folder / "there");
    for (const char* name : {"there", "there/", "new/"}) {
        CAPTURE(name);
        const auto error = error_of([&] { AtomicFile(folder / name); });
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("is a folder"));
    }
    CHECK(folder.names() == std::vector<std::string>{"there"});
}

TEST_CASE("missing folders are made for a file, and a trial leaves none of them") {
    const TemporaryFolder folder;
    const fs::path file = folder / "a/b/a";
    write_file(folder / "file", "x");
    check_writable(file);
    CHECK(folder.names() == std::vector<std::string>{"file"});
    make_folders_for(file);
    make_folders_for(file);
    write_whole_file(file, bytes_of("text"));
    CHECK(read_file(file) == bytes_of("text"));
    CHECK_NOTHROW(check_writable(file));
    CHECK_NOTHROW(check_writable("out"));
    const std::string long_name(300, 'a');
    for (const fs::path& wrong :
         {folder / "file/x", folder / "file/x/y", folder / long_name, folder / long_name / "x",
          folder / "new" / long_name / "x", folder / "a", folder / "a/"}) {
        CAPTURE(wrong);
        CHECK(error_of([&] { check_writable(wrong); }).kind == ErrorKind::bad_file);
    }
    CHECK(error_of([&] { make_folders_for(folder / "file/x"); }).kind == ErrorKind::bad_file);
    CHECK(folder.names() == std::vector<std::string>{"a", "file"});
}

#ifndef _WIN32
TEST_CASE("a pipe takes bytes and stays a pipe") {
    const TemporaryFolder folder;
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK(is_stream(folder / "pipe"));
    for (const auto& error : {error_of([&] { AtomicFile(folder / "pipe"); }),
                              error_of([&] { check_writable(folder / "pipe"); })}) {
        CHECK(error.kind == ErrorKind::bad_file);
        CHECK(error.mentions("pipe or a device"));
    }
    const std::string text(200'000, 'x');  // more than a pipe holds
    auto reader = std::async(std::launch::async, [&] { return read_file(folder / "pipe"); });
    write_whole_file(folder / "pipe", bytes_of(text));
    CHECK(reader.get() == bytes_of(text));
    CHECK(fs::is_fifo(folder / "pipe"));
}

TEST_CASE("a device takes bytes and stays a device") {
    for (const char* device : {"/dev/null", "/dev/stdout"}) {
        CAPTURE(device);
        CHECK(is_stream(device));
        CHECK(error_of([&] { AtomicFile file(device); }).kind == ErrorKind::bad_file);
    }
    write_whole_file("/dev/null", bytes_of("gone"));
    CHECK(fs::is_character_file("/dev/null"));
    const TemporaryFolder folder;
    fs::create_symlink("/dev/null", folder / "link");
    write_whole_file(folder / "link", bytes_of("gone"));
    CHECK(fs::is_symlink(folder / "link"));
    CHECK_FALSE(is_stream(folder / "absent"));
    CHECK_FALSE(is_stream(folder.path()));
    if (fs::exists("/dev/full")) {
        CHECK(error_of([&] { write_whole_file("/dev/full", bytes_of("x")); }).kind ==
              ErrorKind::out_of_disk);
    }
}

namespace {

// Starts a child that writes half a file under this name and waits; kills it there, after
// `meanwhile`.
void kill_a_writer(const fs::path& path, const std::function<void()>& meanwhile = {}) {
    int ready[2] = {};
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            AtomicFile file(path);
            file.write_at(0, bytes_of("half of the new"));
            if (write(ready[1], "x", 1) == 1) {
                pause();
            }
        } catch (...) {
        }
        _exit(1);
    }
    close(ready[1]);
    char byte = 0;
    const ssize_t n_read = read(ready[0], &byte, 1);
    close(ready[0]);
    CHECK(n_read == 1);
    if (meanwhile) {
        meanwhile();
    }
    CHECK(kill(child, SIGKILL) == 0);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST_CASE("a killed writer leaves the old file whole") {
    const TemporaryFolder folder;
    write_file(folder / "out", "old");
    kill_a_writer(folder / "out");
    CHECK(read_file(folder / "out") == bytes_of("old"));
}

TEST_CASE("what a killed writer left is deleted by the next of the same name, not while it lives") {
    const TemporaryFolder folder;
    write_file(folder / "other.partial-0000000a", "of another file");
    write_file(folder / "out.partial-notahex", "of another program");
    fs::path temporary;
    kill_a_writer(folder / "out", [&] {
        write_whole_file(folder / "out", bytes_of("new"));
        CHECK(folder.names().size() == 4);  // that of the child too
        for (const std::string& name : folder.names()) {
            if (is_temporary_name(name, "out")) {
                temporary = folder / name;
            }
        }
        REQUIRE(!temporary.empty());
        CHECK_FALSE(remove_abandoned(temporary));
        CHECK(read_file(temporary) == bytes_of("half of the new"));
    });
    CHECK(fs::exists(temporary));
    write_whole_file(folder / "out", bytes_of("newer"));
    CHECK(folder.names() ==
          std::vector<std::string>{"other.partial-0000000a", "out", "out.partial-notahex"});
}

TEST_CASE("a killed writer leaves nothing under a new final name") {
    const TemporaryFolder folder;
    kill_a_writer(folder / "out");
    CHECK_FALSE(fs::exists(folder / "out"));
}
#endif

TEST_CASE("a size no disk has is refused with both numbers") {
    const TemporaryFolder folder;
    constexpr uint64_t kNeeded = uint64_t{1} << 62;
    const auto error = error_of([&] { check_free_space(folder / "out", kNeeded); });
    CHECK(error.kind == ErrorKind::out_of_disk);
    CHECK(error.mentions((folder / "out").string()));
    CHECK(error.mentions(std::to_string(kNeeded)));
    // The free space may change between two looks at it, so only a number is asked for.
    CHECK(error.message.find_first_of("0123456789", error.message.find("has only ")) ==
          error.message.find("has only ") + 9);
}

TEST_CASE("the names of temporary files are told from others") {
    CHECK(is_temporary_name("a.gguf.partial-0123abcd"));
    CHECK(is_temporary_name("a.gguf.partial-0123abcd", "a.gguf"));
    CHECK_FALSE(is_temporary_name("a.gguf.partial-0123abcd", "b.gguf"));
    for (const char* other : {"", "a", ".partial-0123abcd", "a.partial-0123abc",
                              "a.partial-0123ABCD", "a.partial-0123abcd5", "a.partial_0123abcd"}) {
        CAPTURE(other);
        CHECK_FALSE(is_temporary_name(other));
    }
}

TEST_CASE("a small size fits on the disk") {
    const TemporaryFolder folder;
    CHECK_NOTHROW(check_free_space(folder / "out", 1));
    CHECK_NOTHROW(check_free_space("out", 1));
}

TEST_CASE("the free space of a missing folder is refused") {
    const TemporaryFolder folder;
    const auto error = error_of([&] { check_free_space(folder / "absent/out", 1); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions((folder / "absent").string()));
}

TEST_CASE("a text file is read up to its limit") {
    const TemporaryFolder folder;
    write_file(folder / "text", std::string_view("a\0b\r\n", 5));
    CHECK(read_text_file(folder / "text", 5) == std::string("a\0b\r\n", 5));
    const auto error = error_of([&] { read_text_file(folder / "text", 4); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions((folder / "text").string()));
    CHECK(error.mentions("5 bytes"));
    CHECK(error.mentions("at most 4"));
}

TEST_CASE("an empty text file is an empty text") {
    const TemporaryFolder folder;
    write_file(folder / "text", "");
    CHECK(read_text_file(folder / "text", 10).empty());
}

TEST_CASE("a missing text file and a folder are refused") {
    const TemporaryFolder folder;
    CHECK(error_of([&] { read_text_file(folder / "absent", 10); }).mentions("absent"));
    CHECK(error_of([&] { read_text_file(folder.path(), 10); }).kind == ErrorKind::bad_file);
}
