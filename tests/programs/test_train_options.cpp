// The options of flux2-train in its file of settings and in variables.
#include "support/option_walk.hpp"
#include "support/program.hpp"
#include "support/support.hpp"
#include "train/train_options.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2::cli {
namespace {

const test::OptionProgram kTrainProgram = {describe_train_options, false, with_known_spelling};

}  // namespace

TEST_CASE("every option of training is taken from the strongest place that sets it") {
    CHECK(test::check_every_option(kTrainProgram) > 50);
}

TEST_CASE("wrong lines for training are told with file and line") {
    test::check_wrong_lines(kTrainProgram, "flip_aug");
}

TEST_CASE("a wrong value for training says where it is set") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    test::write_file(file, "[flux2-train]\nlr_scheduler = cosine\nnetwork-dim = 0\n");
    const auto run = [&](const std::string& options) {
        return test::run_program("FLUX2_CONFIG=" + file + " " + test::train_path() + " -d x " +
                                 options);
    };
    test::ProgramResult result = run("");
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("(--network_dim is set in " + file + ":3)") != std::string::npos);
    // The name of one option begins with that of another.
    result = run("--network_dim 4 --lr_scheduler_min_lr_ratio 3");
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("--lr_scheduler_min_lr_ratio 3 is out of range") != std::string::npos);
    CHECK(result.err.find("is set in") == std::string::npos);
}

}  // namespace flux2::cli
