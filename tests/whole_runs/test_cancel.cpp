// Ctrl-C and termination in the middle of a picture and of every other long command, through the
// flux2 program.
#include <flux2/image.hpp>
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::Arguments;
using test::fixture;
using test::joined;

// A picture is a long job of short steps, between which the program looks for the signal.
constexpr double kSoon = 3;

// A picture that takes many seconds, with one thread on any CPU, written over an earlier one.
class LongRun {
  public:
    explicit LongRun(const Arguments& more = {}) {
        test::write_file(folder_ / "out.png", std::string_view("an earlier picture"));
        program_.emplace(
            joined(joined(test::small_picture(),
                          {"-p", "x", "-W", "1024", "-H", "1024", "--steps", "4", "--threads", "1",
                           "--device", "CPU", "-o", (folder_ / "out.png").string()}),
                   more));
    }

    test::TerminalProgram& program() { return *program_; }

    void check_ended() {
        CHECK(program_->wait_for_exit(kSoon) == 130);
        CHECK(folder_.names() == std::vector<std::string>{"out.png"});
        CHECK(test::read_file(folder_ / "out.png") == test::bytes_of("an earlier picture"));
    }

  private:
    test::TemporaryFolder folder_;
    std::optional<test::TerminalProgram> program_;
};

TEST_CASE("a signal during denoising ends the run and leaves nothing") {
    for (const int signal : {SIGINT, SIGTERM}) {
        LongRun run;
        run.program().wait_for("denoising");
        run.program().send(signal);
        run.program().wait_for("flux2: cancelled");
        run.check_ended();
    }
}

TEST_CASE("the terminal's Ctrl-C does the same") {
    LongRun run;
    run.program().wait_for("denoising");
    run.program().type("\x03");
    run.check_ended();
}

TEST_CASE("decoding can be cancelled") {
    LongRun run({"-W", "512", "-H", "512", "--steps", "1"});
    run.program().wait_for("decoding");
    run.program().send(SIGINT);
    run.check_ended();
}

TEST_CASE("encoding references can be cancelled") {
    const test::TemporaryFolder pictures;
    const size_t n = 1024 * 1024 * 3;
    save_image(pictures / "large.png", {1024, 1024, std::vector<uint8_t>(n, 50)});
    LongRun run({"-r", (pictures / "large.png").string()});
    run.program().wait_for("loading the autoencoder");
    CHECK(run.program().wait_for_exit(0.5) == -1);  // by then it encodes
    run.program().send(SIGINT);
    run.check_ended();
}

TEST_CASE("a cancelled run says so in JSON") {
    LongRun run({"--json"});
    run.program().wait_for("\"stage\":\"denoising\"");
    run.program().send(SIGINT);
    const std::string event = run.program().wait_for("\"event\":\"error\"");
    CHECK(event.find("\"code\":130") != std::string::npos);
    run.check_ended();
}

TEST_CASE("pictures that are ready stay when a later one is cancelled") {
    const test::TemporaryFolder folder;
    test::TerminalProgram program(joined(
        test::small_picture(), {"-p", "x", "-b", "10000", "-o", (folder / "%04d.png").string()}));
    program.wait_for("0002.png");
    program.send(SIGINT);
    CHECK(program.wait_for_exit(kSoon) == 130);
    CHECK(load_image(folder / "0001.png").width == 64);
    for (const std::string& name : folder.names()) {
        CHECK(name.ends_with(".png"));
    }
}

#if defined(__GLIBC__) && defined(INTERRUPT_AT_ALLOCATION_LIBRARY)

TEST_CASE("a LoRA that was being put on at Ctrl-C is whole in the session's next picture") {
    const test::TemporaryFolder folder;
    // Of a rank that gives its values a size that nothing else has.
    constexpr int64_t kHidden = 256, kRank = 37;
    std::vector<test::TestTensor> tensors;
    for (const char* block : {"0", "1"}) {
        const std::string module =
            std::string("diffusion_model.double_blocks.") + block + ".img_attn.proj.";
        const test::Bytes values = test::bytes_of(std::vector<float>(kHidden * kRank, 0.02f));
        tensors.push_back({module + "lora_A.weight", {kHidden, kRank}, values});
        tensors.push_back({module + "lora_B.weight", {kRank, kHidden}, values});
    }
    test::write_file(folder / "two.safetensors", test::safetensors_of(tensors));
    const Arguments small = {"-m",
                             test::tiny_model(),
                             "--no-cache",
                             "--device",
                             "CPU",
                             "--threads",
                             "1",
                             "-W",
                             "64",
                             "-H",
                             "64",
                             "--steps",
                             "1",
                             "-s",
                             "1",
                             "--lora-dir",
                             folder.path().string()};
    const std::string with_lora = "a red house <lora:two:1>";
    const fs::path expected = folder / "expected.png";
    REQUIRE(
        test::flux2_program(joined(small, {"-p", with_lora, "-o", expected.string()})).exit_code ==
        0);
    const size_t awaited = kHidden * kRank * sizeof(float);  // first the first pair's
    setenv("INTERRUPT_AT_ALLOCATION", std::to_string(awaited).c_str(), 1);
    setenv("LD_PRELOAD", INTERRUPT_AT_ALLOCATION_LIBRARY, 1);
    test::TerminalProgram user(joined(small, {"--keep-loaded", "-o", (folder / "a.png").string()}));
    unsetenv("LD_PRELOAD");
    unsetenv("INTERRUPT_AT_ALLOCATION");
    user.wait_for("> ");
    user.type("a red house\n");
    user.wait_for("$1 = ");
    user.wait_for("> ");
    user.type(with_lora + "\n");
    user.wait_for("flux2: cancelled");
    user.wait_for("> ");
    user.type(with_lora + "\n");
    user.wait_for("$2 = ");
    user.wait_for("> ");
    CHECK(load_image(folder / "a-002.png").rgb == load_image(expected).rgb);
    CHECK(load_image(folder / "a-001.png").rgb != load_image(expected).rgb);
    user.type("quit\n");
    CHECK(user.wait_for_exit(kSoon) == 0);
}

#endif

TEST_CASE("a program that waits for prompts ends at once") {
    const test::TemporaryFolder folder;
    // The warning about a picture tells that the program has come to its prompts.
    test::TerminalProgram program(joined(
        test::small_picture(), {"-i", test::fuzz_corpus() + std::string("/image/png_grey_alpha"),
                                "--prompt-file", "-", "-o", (folder / "x.png").string()}));
    program.wait_for("has transparent pixels");
    program.type("a prompt\n");
    program.type("\x03");
    CHECK(program.wait_for_exit(kSoon) == 130);
    CHECK(folder.names().empty());
}

// ---- Commands that write no files: they end at once ----

// Starts the command, waits for a text that tells that it works, and sends each of the signals.
void check_ends_at_once(const Arguments& command, const std::string& when) {
    constexpr double kAtOnce = 2;
    CAPTURE(command.front());
    for (const int signal : {SIGINT, SIGTERM}) {
        test::TerminalProgram program(command);
        program.wait_for(when);
        program.send(signal);
        program.wait_for("flux2: cancelled");
        CHECK(program.wait_for_exit(kAtOnce) == 130);
    }
}

Arguments bench_of_transformer(const Arguments& more) {
    return joined({"bench", "--device", "CPU", "-t", "1", "--diffusion-model",
                   fixture("klein/flux2.safetensors").string()},
                  more);
}

TEST_CASE("a benchmark ends at once: of networks, of types, of operations") {
    const Arguments many = {"-W", "64", "-H", "64", "--repeat", "1000000000"};
    check_ends_at_once(bench_of_transformer(many), "device CPU");
    check_ends_at_once({"bench", "--device", "CPU", "-t", "1", "--types"}, "device CPU");
    check_ends_at_once(
        bench_of_transformer({"-W", "512", "-H", "512", "--repeat", "1", "--profile"}),
        "transformer");
}

TEST_CASE("a self-test ends at once: of networks, of operations, of recorded runs") {
    check_ends_at_once({"selftest", "--device", "CPU", "--threads", "1"}, "text_encoder");
    check_ends_at_once({"selftest", "--device", "CPU", "--ops"}, "modulate");
    check_ends_at_once({"selftest", "--device", "CPU", "-m", test::tiny_model(), "--replay",
                        fixture("tiny/golden-t2i.safetensors").string(),
                        fixture("tiny/golden-edit.safetensors").string()},
                       "token_ids");
}

TEST_CASE("a look at many files ends at once") {
    constexpr int kFiles = 400;  // and as many pairs of each with each
    Arguments command = {"info"};
    for (int i = 0; i < kFiles; ++i) {
        command.push_back(fixture("klein/flux2.safetensors").string());
        command.push_back(fixture("klein/vae.safetensors").string());
    }
    check_ends_at_once(command, "autoencoder");
}

TEST_CASE("a plan ends at once") {
    const test::TemporaryFolder pictures;
    const size_t n = 2048 * 2048 * 3;
    save_image(pictures / "large.png", {2048, 2048, std::vector<uint8_t>(n, 50)});
    // The warning about the first picture tells that the others are being read.
    Arguments command = joined(joined({"plan"}, test::small_picture()),
                               {"-r", test::fuzz_corpus() + std::string("/image/png_grey_alpha")});
    for (int i = 0; i < 9; ++i) {
        command = joined(command, {"-r", (pictures / "large.png").string()});
    }
    check_ends_at_once(command, "has transparent pixels");
}

}  // namespace
}  // namespace flux2
