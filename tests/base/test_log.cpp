// The log callback.
#include "base/log.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

constexpr int kThreads = 4;
constexpr int kLines = 500;

void log_from_threads() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([] {
            for (int line = 0; line < kLines; ++line) {
                log(LogLevel::info, "a line");
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST_CASE("lines are UTF-8, whatever the names in them are") {
    std::string last;
    const ScopedLog log_here([&](LogLevel, const std::string& line) { last = line; });
    log(LogLevel::info, "caf\xE9.png and caf\xC3\xA9.png");
    CHECK(last == "caf\xEF\xBF\xBD.png and caf\xC3\xA9.png");
}

TEST_CASE("lines from several threads come one at a time, and none is lost") {
    std::atomic<int> n_inside = 0;
    std::atomic<int> n_overlaps = 0;
    int n_lines = 0;
    set_log([&](LogLevel, const std::string&) {
        n_overlaps += n_inside++ > 0 ? 1 : 0;
        std::this_thread::yield();
        ++n_lines;
        --n_inside;
    });
    log_from_threads();
    set_log({});
    CHECK(n_overlaps == 0);
    CHECK(n_lines == kThreads * kLines);
}

TEST_CASE("a sink may be replaced while others speak, and is left alone afterwards") {
    std::atomic<bool> done = false;
    std::thread speaker([&] {
        while (!done) {
            log(LogLevel::info, "a line");
        }
    });
    for (int i = 0; i < kLines; ++i) {
        std::atomic<bool> called = false;
        std::atomic<bool> gone = false;
        std::atomic<bool> called_late = false;
        set_log([&](LogLevel, const std::string&) {
            called = true;
            called_late = called_late || gone;
        });
        while (!called) {
            std::this_thread::yield();
        }
        set_log({});
        gone = true;
        std::this_thread::yield();
        CHECK_FALSE(called_late);
    }
    done = true;
    speaker.join();
}

TEST_CASE("a sink may call what logs") {
    std::vector<std::string> lines;
    set_log([&](LogLevel, const std::string& line) {
        lines.push_back(line);
        if (lines.size() == 1) {
            log(LogLevel::info, "inner");
        }
    });
    log(LogLevel::info, "outer");
    set_log({});
    CHECK(lines == std::vector<std::string>{"outer", "inner"});
}

}  // namespace
}  // namespace flux2
