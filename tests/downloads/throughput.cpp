// How fast a download is beside curl's, and what it takes in memory. Not run by default:
// TMPDIR=/dev/shm flux2-downloads-tests --no-skip --test-case='*curl*'
#include "support/hub_imitation.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

extern char** environ;

namespace flux2 {
namespace {

struct Timed {
    double seconds = 0;
    double peak_mb = 0;
};

// Memory of a process in RAM without files, as far as the system tells.
double memory_mb(pid_t process) {
    std::ifstream lines("/proc/" + std::to_string(process) + "/status");
    for (std::string word; lines >> word;) {
        double kib = 0;
        if (word == "RssAnon:" && lines >> kib) {
            return kib / 1000;
        }
    }
    return 0;
}

Timed run(const std::string& command_line) {
    std::string shell = "sh";
    std::string flag = "-c";
    std::string line = "exec " + command_line + " > /dev/null 2>&1";
    char* argv[] = {shell.data(), flag.data(), line.data(), nullptr};
    const auto start = std::chrono::steady_clock::now();
    pid_t process = 0;
    REQUIRE(posix_spawn(&process, "/bin/sh", nullptr, nullptr, argv, environ) == 0);
    Timed timed;
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
        timed.peak_mb = std::max(timed.peak_mb, memory_mb(process));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
    timed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return timed;
}

}  // namespace

// A checked download is not held to 80 % of curl alone, which checks nothing: the ratio is printed.
TEST_CASE("a transfer is at least 80 % as fast as curl's, with and without a hash on both sides" *
          doctest::skip()) {
    constexpr size_t kBytes = size_t{1} << 30;
    const test::TemporaryFolder folder;
    test::TestHub hub;
    const std::string bytes = test::random_bytes(kBytes);
    hub.add("maker/large", "hashed.bin", bytes);
    hub.add("maker/large", "plain.bin", bytes);
    hub.forget_hash("plain.bin");
    const std::string file = (folder / "by_curl").string();
    const std::string cache = (folder / "cache").string();
    const std::string curl = "curl -sfL " + hub.endpoint() + "/maker/large/resolve/main/plain.bin ";
    const std::string pull = "env HF_HUB_CACHE=" + cache + " HF_ENDPOINT=" + hub.endpoint() + " " +
                             test::flux2_path() + " pull -hf maker/large:";
    const std::array commands = {curl + "-o " + file, pull + "plain.bin",
                                 "sh -c '" + curl + "| tee " + file + " | openssl dgst -sha256'",
                                 pull + "hashed.bin"};
    std::array<double, 4> best = {1e9, 1e9, 1e9, 1e9};
    double peak_mb = 0;
    for (int round = 0; round < 5; ++round) {  // in turns; all write new files
        for (size_t i = 0; i < commands.size(); ++i) {
            const Timed timed = run(commands[i]);
            best[i] = std::min(best[i], timed.seconds);
            peak_mb = std::max(peak_mb, timed.peak_mb);
            std::filesystem::remove(file);
            std::filesystem::remove_all(cache);
        }
    }
    const double n = static_cast<double>(kBytes) / 1e6;
    std::cout << "curl " << n / best[0] << " MB/s, flux2 pull without a hash " << n / best[1]
              << " MB/s; curl with openssl dgst " << n / best[2] << " MB/s, flux2 pull "
              << n / best[3] << " MB/s, " << 100 * best[0] / best[3] << " % of curl alone; peak "
              << peak_mb << " MB\n";
    CHECK(best[0] / best[1] >= 0.8);
    CHECK(best[2] / best[3] >= 0.8);
    CHECK(peak_mb < 200);
}

}  // namespace flux2
