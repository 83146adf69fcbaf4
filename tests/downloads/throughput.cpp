// How fast a download is beside curl's, and what it takes in memory. Not run by default:
// TMPDIR=/dev/shm flux2-downloads-tests --no-skip --test-case='*curl*'
#include "support/certificates.hpp"
#include "support/hub_imitation.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <spawn.h>
#include <sys/resource.h>
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

constexpr size_t kBytes = size_t{1} << 30;

struct Timed {
    double seconds = 1e9;
    double processor_seconds = 1e9;  // of the program and those it started
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

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
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
    rusage usage{};
    while (wait4(process, &status, WNOHANG, &usage) == 0) {
        timed.peak_mb = std::max(timed.peak_mb, memory_mb(process));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
    timed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    timed.processor_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    return timed;
}

// The best of several runs by curl, by us without and with a hash, and by curl with a hash.
struct Comparison {
    Timed curl, transfer, curl_and_hash, checked;
};

Comparison compare(test::TestHub& hub, const std::filesystem::path& folder,
                   const std::string& authority) {
    {
        const std::string bytes = test::random_bytes(kBytes);
        hub.add("maker/large", "hashed.bin", bytes);
        hub.add("maker/large", "plain.bin", bytes);
    }
    hub.forget_hash("plain.bin");
    const std::string file = (folder / "by_curl").string();
    const std::string cache = (folder / "cache").string();
    const std::string curl = "curl -sfL " + (authority.empty() ? "" : "--cacert " + authority) +
                             " " + hub.endpoint() + "/maker/large/resolve/main/plain.bin ";
    const std::string pull = "env HF_HUB_CACHE=" + cache + " HF_ENDPOINT=" + hub.endpoint() +
                             (authority.empty() ? "" : " SSL_CERT_FILE=" + authority) + " " +
                             test::flux2_path() + " pull -hf maker/large:";
    const std::array commands = {curl + "-o " + file, pull + "plain.bin",
                                 "sh -c '" + curl + "| tee " + file + " | openssl dgst -sha256'",
                                 pull + "hashed.bin"};
    std::array<Timed, 4> best;
    for (int round = 0; round < 5; ++round) {  // in turns; all write new files
        for (size_t i = 0; i < commands.size(); ++i) {
            const Timed timed = run(commands[i]);
            best[i].seconds = std::min(best[i].seconds, timed.seconds);
            best[i].processor_seconds =
                std::min(best[i].processor_seconds, timed.processor_seconds);
            best[i].peak_mb = std::max(best[i].peak_mb, timed.peak_mb);
            std::filesystem::remove(file);
            std::filesystem::remove_all(cache);
        }
    }
    const std::array names = {"curl", "flux2 pull, no hash promised", "curl | tee | openssl dgst",
                              "flux2 pull"};
    for (size_t i = 0; i < names.size(); ++i) {
        std::cout << names[i] << ": " << static_cast<double>(kBytes) / 1e6 / best[i].seconds
                  << " MB/s, " << 100 * best[0].seconds / best[i].seconds << " % of curl; "
                  << best[i].processor_seconds << " s of processors, " << best[i].peak_mb
                  << " MB\n";
    }
    return {best[0], best[1], best[2], best[3]};
}

}  // namespace

// A checked download is not held to 80 % of curl alone here, which has neither to check nor to
// decrypt: the ratio is printed.
TEST_CASE("a transfer is at least 80 % as fast as curl's, with and without a hash on both sides" *
          doctest::skip()) {
    const test::TemporaryFolder folder;
    test::TestHub hub;
    const Comparison best = compare(hub, folder.path(), "");
    CHECK(best.curl.seconds / best.transfer.seconds >= 0.8);
    CHECK(best.curl_and_hash.seconds / best.checked.seconds >= 0.8);
    CHECK(best.checked.peak_mb < 200);
}

TEST_CASE("over TLS a checked download is at least 80 % as fast as curl's" * doctest::skip()) {
    const test::TemporaryFolder folder;
    const test::Certificates certificates = test::make_certificates(folder.path(), "127.0.0.1");
    test::TestHub hub(certificates.certificate, certificates.key);
    const Comparison best = compare(hub, folder.path(), certificates.authority.string());
    CHECK(best.curl.seconds / best.transfer.seconds >= 0.8);
    CHECK(best.curl.seconds / best.checked.seconds >= 0.8);
    CHECK(best.checked.peak_mb < 200);
}

}  // namespace flux2
