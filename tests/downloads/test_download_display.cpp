// What users and logs see of a download.
#include "common/download_display.hpp"
#include "support/folders.hpp"
#include "support/hub_imitation.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::has;

constexpr uint64_t kMega = 1'000'000;

std::string text_of(const fs::path& file) {
    const test::Bytes bytes = test::read_file(file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("without a terminal a download has a line at its begin and end and each five seconds") {
    std::vector<std::string> lines;
    cli::DownloadDisplay display([&](const std::string& line) { lines.push_back(line); }, false);
    const cli::DownloadDisplay::Time start{};
    const auto show = [&](uint64_t done_mb, std::chrono::milliseconds after) {
        display.show({"folder/x.gguf", 100 * kMega, done_mb * kMega, 1100 * kMega}, start + after);
    };
    show(100, 0ms);
    show(300, 2000ms);
    show(599, 4990ms);
    show(600, 5000ms);
    show(601, 5010ms);
    show(900, 9999ms);
    show(1000, 10'000ms);
    show(1100, 11'000ms);
    show(1100, 20'000ms);
    CHECK(lines ==
          std::vector<std::string>{"downloading x.gguf, 1.1 GB, continued at 100 MB",
                                   "downloading x.gguf: 600 MB of 1.1 GB, 100 MB/s, 5.0 s left",
                                   "downloading x.gguf: 1.0 GB of 1.1 GB, 90 MB/s, 1.1 s left",
                                   "downloaded x.gguf, 1.1 GB in 11.0 s"});

    lines.clear();
    display.show({"unknown.bin", 0, 5 * kMega, std::nullopt}, start);
    display.show({"unknown.bin", 0, 15 * kMega, std::nullopt}, start + 6s);
    CHECK(lines == std::vector<std::string>{"downloading unknown.bin",
                                            "downloading unknown.bin: 15 MB, 3 MB/s"});
}

TEST_CASE("the bar of a download tells its rate and the time left") {
    const std::string bar = cli::download_bar({"a/x.gguf", 0, 500 * kMega, 1000 * kMega}, 5.0);
    CHECK(has(bar, "x.gguf  ["));
    CHECK(has(bar, "500 MB of 1.0 GB, 100 MB/s"));
    CHECK(has(bar, "5.0 s left"));
}

#ifdef FLUX2_HAS_SERVER
TEST_CASE("the server tells in its log what it downloads, and under which licence") {
    const test::TemporaryFolder folder;
    test::TestHub hub;
    const fs::path tiny = test::tiny_model();
    hub.add("maker/toy-GGUF", "toy-Q8_0.gguf", text_of(tiny / "flux2-tiny-bf16.gguf"));
    hub.add("maker/toy-GGUF", "encoder.gguf", text_of(tiny / "text-encoder-bf16.gguf"));
    hub.add("maker/toy-GGUF", "vae.gguf", text_of(tiny / "vae-bf16.gguf"));
    fs::create_directories(folder / "flux2");
    test::write_file(folder / "flux2/models.json", R"({
        "models": {"toy": {"licence": "a test licence", "text_encoder": "toy-encoder",
                           "vae": "toy-vae", "files": [{"type": "Q8_0",
                           "repository": "maker/toy-GGUF", "file": "toy-Q8_0.gguf"}]}},
        "text_encoders": {"toy-encoder": {"files": [{"type": "Q8_0",
            "repository": "maker/toy-GGUF", "file": "encoder.gguf"}]}},
        "autoencoders": {"toy-vae": {"files": [{"type": "F32", "repository": "maker/toy-GGUF",
            "file": "vae.gguf"}]}}})");
    const std::string user = folder.path().string();
    // Returns its log up to the moment when it is ready. Each run has a log of its own: the shell
    // may look for "ready" before the server has opened the file.
    int runs = 0;
    const auto run = [&](const std::string& options) {
        const std::string log = user + "/log" + std::to_string(++runs);
        const std::string line = "env -u HF_TOKEN -u HF_HUB_CACHE HOME=" + user +
                                 " XDG_CONFIG_HOME=" + user + " XDG_CACHE_HOME=" + user +
                                 "/caches HF_HOME=" + user + "/hf HF_ENDPOINT=" + hub.endpoint() +
                                 " " + test::server_path() + " --port 0 --device CPU -m toy " +
                                 options + " > /dev/null 2> " + log + " < /dev/null & ";
        return test::run_program(line + "for i in $(seq 400); do grep -qs event=ready " + log +
                                 " && break; sleep 0.025; done; kill -TERM $!; wait $!; cat " + log)
            .out;
    };
    const std::string log = run("");
    INFO(log);
    CHECK(has(log, R"(level=info event=model text="toy is under the licence a test licence")"));
    CHECK(has(log, R"(event=model text="downloading toy-Q8_0.gguf, )"));
    CHECK(has(log, R"(event=model text="downloaded toy-Q8_0.gguf, )"));
    CHECK(has(log, R"(event=model text="downloaded vae.gguf, )"));
    CHECK(has(log, R"(event=model text="model: toy:Q8_0: toy-Q8_0.gguf, encoder.gguf, vae.gguf")"));
    CHECK(log.find("event=ready") > log.find("downloaded vae.gguf"));

    fs::remove_all(folder / "hf");
    const std::string quiet = run("--quiet");
    CHECK(has(quiet, "event=ready"));
    CHECK_FALSE(has(quiet, "event=model"));
}
#endif

}  // namespace flux2
