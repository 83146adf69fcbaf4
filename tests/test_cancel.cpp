// Ctrl-C and termination in the middle of a picture, through the flux2 program.
#include <flux2/image.hpp>
#include "cli.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <optional>

namespace flux2 {
namespace {

using test::Arguments;
using test::fixture;
using test::joined;

// A picture is a long job of short steps, between which the program looks for the signal.
constexpr double kSoon = 3;

// A picture that takes many seconds, written over an earlier one.
class LongRun {
  public:
    explicit LongRun(const Arguments& more = {}) {
        test::write_file(folder_ / "out.png", std::string_view("an earlier picture"));
        program_.emplace(
            joined(joined(test::small_picture(), {"-p", "x", "-W", "1024", "-H", "1024", "--steps",
                                                  "4", "-o", (folder_ / "out.png").string()}),
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

TEST_CASE("a program that waits for prompts ends at once") {
    const test::TemporaryFolder folder;
    // The warning about a picture tells that the program has come to its prompts.
    test::TerminalProgram program(
        joined(test::small_picture(), {"-i", FLUX2_TEST_CORPUS "/image/png_grey_alpha",
                                       "--prompt-file", "-", "-o", (folder / "x.png").string()}));
    program.wait_for("has transparent pixels");
    program.type("a prompt\n");
    program.type("\x03");
    CHECK(program.wait_for_exit(kSoon) == 130);
    CHECK(folder.names().empty());
}

}  // namespace
}  // namespace flux2
