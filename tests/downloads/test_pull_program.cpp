// flux2 as users run it, with a Hub of the tests: models by name, -hf, pull, models, rm, and
// programs that are killed or run at the same time.
#include "support/folders.hpp"
#include "support/hub_imitation.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::has;
using test::read_text;
using test::TestHub;

const std::string kFlux2 = test::flux2_path();

// The bundled model's files as a model of the Hub that is called toy, and folders of a user.
struct Case {
    test::TemporaryFolder folder;
    TestHub hub;

    Case() {
        const fs::path tiny = test::tiny_model();
        hub.add("maker/toy-GGUF", "toy-Q8_0.gguf", read_text(tiny / "flux2-tiny-bf16.gguf"));
        hub.add("other/encoder-GGUF", "encoder-Q8_0.gguf",
                read_text(tiny / "text-encoder-bf16.gguf"));
        hub.add("other/vae", "sub/vae.gguf", read_text(tiny / "vae-bf16.gguf"));
        fs::create_directories(folder / "config/flux2");
        test::write_file(folder / "config/flux2/models.json", R"({
            "models": {"toy": {"licence": "a test licence", "licence_page": "https://example.org",
                               "path_variable": "TOY_MODEL_PATH",
                               "text_encoder": "toy-encoder", "vae": "toy-vae",
                               "files": [{"type": "Q8_0", "repository": "maker/toy-GGUF",
                                          "file": "toy-Q8_0.gguf"}]}},
            "text_encoders": {"toy-encoder": {"files": [{"type": "Q8_0",
                "repository": "other/encoder-GGUF", "file": "encoder-Q8_0.gguf"}]}},
            "autoencoders": {"toy-vae": {"files": [{"type": "F32", "repository": "other/vae",
                "file": "sub/vae.gguf"}]}}})");
    }

    std::string variables() const {
        const std::string user = folder.path().string();
        return "env -u HF_TOKEN -u HF_HUB_CACHE HOME=" + user + " XDG_CONFIG_HOME=" + user +
               "/config XDG_CACHE_HOME=" + user + "/caches XDG_DATA_HOME=" + user +
               "/data HF_HOME=" + user + "/hf HF_ENDPOINT=" + hub.endpoint() + " ";
    }
    test::ProgramResult run(const std::string& arguments, const std::string& more = "") const {
        return test::run_program(variables() + more + " " + kFlux2 + " " + arguments +
                                 " < /dev/null");
    }
    fs::path cache() const { return folder / "hf/hub"; }
};

// flux2 that runs beside the test.
class Running {
  public:
    explicit Running(const std::string& command_line) {
        std::string shell = "sh";
        std::string flag = "-c";
        std::string line = "exec " + command_line + " > /dev/null 2>&1 < /dev/null";
        char* argv[] = {shell.data(), flag.data(), line.data(), nullptr};
        REQUIRE(posix_spawn(&process_, "/bin/sh", nullptr, nullptr, argv, environ) == 0);
    }
    ~Running() {
        if (process_ > 0) {
            send(SIGKILL);
            wait();
        }
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    void send(int signal) const { kill(process_, signal); }
    int wait() {
        int status = 0;
        waitpid(process_, &status, 0);
        process_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

  private:
    pid_t process_ = -1;
};

uint64_t size_of(const fs::path& file) {
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    return error ? 0 : size;
}

}  // namespace

TEST_CASE("a model that is named is fetched once, and its licence shown once") {
    const Case c;
    auto result = c.run("plan -m toy -W 64 -H 64 --no-cache");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "toy is under the licence a test licence: https://example.org"));
    CHECK(has(result.err, "model: toy:Q8_0: toy-Q8_0.gguf, encoder-Q8_0.gguf, vae.gguf"));
    const size_t n_requests = c.hub.requests().size();
    CHECK(n_requests == 6);  // what it is and its bytes, for three files

    result = c.run("plan -m TOY:q8_0 -W 64 -H 64 --no-cache");
    CHECK(result.exit_code == 0);
    CHECK_FALSE(has(result.err, "licence"));
    CHECK(c.hub.requests().size() == n_requests);

    result = c.run("models");
    CHECK(has(result.out, "toy: "));
    CHECK(has(result.out, "Q8_0    here"));
    CHECK(has(result.out, "klein-4b: "));

    const std::string file =
        (c.cache() / "models--maker--toy-GGUF/snapshots" / TestHub::kCommit / "toy-Q8_0.gguf")
            .string();
    CHECK(has(c.run("info " + file).out, "licence: a test licence, https://example.org"));

    result = c.run("rm toy");
    CHECK(result.exit_code == 0);
    CHECK(has(result.out, "deleted maker/toy-GGUF: toy-Q8_0.gguf"));
    CHECK(has(c.run("models").out, "Q8_0    -"));
    CHECK_FALSE(fs::exists(c.cache() / "models--maker--toy-GGUF"));
}

TEST_CASE("names that are unknown are refused with those that are close") {
    const Case c;
    auto result = c.run("plan -m klein-4c");
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "klein-4c: no such folder, and no model of this name"));
    CHECK(has(result.err, "klein-4b"));
    result = c.run("pull toy:Q2_K");
    CHECK(result.exit_code == 2);
    CHECK(has(result.err, "toy is published as Q8_0, not as Q2_K"));
    CHECK(c.hub.requests().empty());
}

TEST_CASE("an existing folder is stronger than a model of its name") {
    const Case c;
    fs::create_directories(c.folder / "toy");
    const auto result = test::run_program("cd " + c.folder.path().string() + " && " +
                                          c.variables() + kFlux2 + " plan -m toy");
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "toy: holds no part of FLUX.2"));
    CHECK(c.hub.requests().empty());
}

TEST_CASE("offline nothing is asked for, and files of the authors' variables are used") {
    const Case c;
    auto result = c.run("plan -m toy --offline");
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "toy-Q8_0.gguf is not in the cache"));
    CHECK(has(result.err, "--offline is given"));
    result = c.run("plan -m toy", "HF_HUB_OFFLINE=1");
    CHECK(has(result.err, "HF_HUB_OFFLINE is set"));
    const std::string transformer = std::string(test::tiny_model()) + "/flux2-tiny-bf16.gguf";
    result = c.run("plan -m toy", "HF_HUB_OFFLINE=1 TOY_MODEL_PATH=" + transformer);
    CHECK(has(result.err, "encoder-Q8_0.gguf is not in the cache"));  // the next part
    result = c.run("plan -m toy", "HF_HUB_OFFLINE=1 TOY_MODEL_PATH=/nothing");
    CHECK(has(result.err, "TOY_MODEL_PATH names /nothing, and there is no such file"));
    CHECK(c.hub.requests().empty());
}

TEST_CASE("-hf names files of repositories, for each part") {
    const Case c;
    const auto result = c.run(
        "plan -hf maker/toy-GGUF:q8_0 --hf-text-encoder other/encoder-GGUF "
        "--hf-vae other/vae:sub/vae.gguf -W 64 -H 64 --no-cache");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "toy-Q8_0.gguf, encoder-Q8_0.gguf, vae.gguf"));
    // What is here is used without a request.
    const size_t n_requests = c.hub.requests().size();
    CHECK(c.run("plan --hf-repo=maker/toy-GGUF -W 64 -H 64 --no-cache", "HF_HUB_OFFLINE=1")
              .exit_code == 0);
    CHECK(c.hub.requests().size() == n_requests);
    const auto wrong = c.run("plan -hf maker/toy-GGUF:Q4_K_M");
    CHECK(wrong.exit_code == 3);
    CHECK(has(wrong.err, "has neither a file nor a type 'Q4_K_M'; it has toy-Q8_0.gguf"));
    CHECK(c.run("plan -hf toy").exit_code == 2);
}

TEST_CASE("a gated model is explained, and works with a token") {
    Case c;
    c.hub.gated = "maker/toy-GGUF";
    c.hub.good_token = "hf_good";
    auto result = c.run("pull toy");
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "maker/toy-GGUF is gated: accept its licence at " + c.hub.endpoint() +
                              "/maker/toy-GGUF"));
    CHECK(has(result.err, "HF_TOKEN"));
    CHECK(c.run("pull toy", "HF_TOKEN=hf_good").exit_code == 0);
}

TEST_CASE("a fetched model is converted, and only the result is kept where asked") {
    const Case c;
    auto result = c.run("pull toy --convert Q4_0 --only-result");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "next: flux2 -m toy:Q4_0"));
    CHECK_FALSE(fs::exists(c.cache() / "models--maker--toy-GGUF"));
    result = c.run("plan -m toy:Q4_0 -W 64 -H 64 --no-cache", "HF_HUB_OFFLINE=1");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "toy-Q4_0.gguf"));
}

TEST_CASE("a download that is killed ten times is continued and byte-identical") {
    Case c;
    const std::string bytes = test::random_bytes(24 << 20, 3);
    c.hub.add("maker/large", "large.bin", bytes);
    c.hub.pause_us = 10'000;  // 6 MB/s on each connection: it must not end between two looks
    const std::string line =
        c.variables() + kFlux2 + " pull -hf maker/large:large.bin --connections 2";
    const fs::path partial =
        c.cache() / "models--maker--large/blobs" / (test::sha256_of(bytes) + ".incomplete");
    uint64_t reached = 0;
    for (int i = 0; i < 10; ++i) {
        Running program(line);
        const auto limit = std::chrono::steady_clock::now() + 10s;
        // At first beyond the short range that is asked for before any chunk.
        const uint64_t enough = i == 0 ? 512 << 10 : reached;
        while (size_of(partial) <= enough && std::chrono::steady_clock::now() < limit) {
            std::this_thread::sleep_for(1ms);
        }
        program.send(SIGKILL);
        REQUIRE(program.wait() == -1);
        CHECK(size_of(partial) >= reached);  // nothing is lost
        reached = size_of(partial);
    }
    CHECK(reached > 0);
    c.hub.pause_us = 0;
    Running last(line);
    CHECK(last.wait() == 0);
    CHECK(read_text(c.cache() / "models--maker--large/snapshots" / TestHub::kCommit /
                    "large.bin") == bytes);
    CHECK_FALSE(fs::exists(partial));
}

TEST_CASE("Ctrl-C ends a download with 130 and keeps its bytes") {
    Case c;
    const std::string bytes = test::random_bytes(8 << 20, 4);
    c.hub.add("maker/large", "large.bin", bytes);
    c.hub.pause_us = 10'000;
    const fs::path partial =
        c.cache() / "models--maker--large/blobs" / (test::sha256_of(bytes) + ".incomplete");
    Running program(c.variables() + kFlux2 + " pull -hf maker/large:large.bin");
    const auto limit = std::chrono::steady_clock::now() + 10s;
    while (size_of(partial) == 0 && std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(1ms);
    }
    program.send(SIGINT);
    CHECK(program.wait() == 130);
    CHECK(size_of(partial) > 0);
    CHECK(size_of(partial) < bytes.size());
}

TEST_CASE("two programs that fetch the same file fetch it once") {
    Case c;
    const std::string bytes = test::random_bytes(8 << 20, 5);
    c.hub.add("maker/large", "large.bin", bytes);
    c.hub.pause_us = 2000;
    const std::string line = c.variables() + kFlux2 + " pull -hf maker/large:large.bin";
    Running one(line);
    Running other(line);
    CHECK(one.wait() == 0);
    CHECK(other.wait() == 0);
    CHECK(c.hub.bytes_sent() == bytes.size());
}

}  // namespace flux2
