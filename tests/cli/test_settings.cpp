// The options of flux2 in its file of settings, in variables and in presets.
#include "common/options.hpp"
#include "support/option_walk.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2::cli {
namespace {

test::OptionProgram flux2_program() {
    test::OptionProgram program;
    program.describe = [] {
        cxxopts::Options options("flux2");
        add_model_options(options);
        add_generate_options(options);
        add_settings_options(options);
        return options;
    };
    return program;
}

}  // namespace

TEST_CASE("every option is taken from the strongest place that sets it") {
    CHECK(test::check_every_option(flux2_program()) > 50);
}

TEST_CASE("a wrong line of the file is told with file and line") {
    const test::OptionProgram flux2 = flux2_program();
    test::check_wrong_lines(flux2, "overwrite");
    test::CaughtError error = flux2.refused("device = CPU\nwidht = 768\n");
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("flux2.ini:2: flux2 has no option 'widht'"));
    error = flux2.refused("[portrait]\nwidht = 768\n");
    CHECK(error.mentions("flux2.ini:2: flux2 has no option 'widht'"));
    error = flux2.refused("[portrait]\nwidth = 768\n[flux2]\n", {"--preset", "portrat"});
    CHECK(error.mentions("there is no preset 'portrat'"));
    CHECK(error.mentions("it has portrait"));
    error = flux2.refused("[portrait]\npreset = other\n");
    CHECK(error.mentions("flux2.ini:2: a preset cannot choose another preset"));
}

TEST_CASE("flux2 leaves out lines under the names of other programs") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    const test::Variable config("FLUX2_CONFIG", file);
    for (const char* program : {"server", "convert", "train", "rpc-server"}) {
        CAPTURE(program);
        test::write_file(file, std::string("[flux2-") + program + "]\nport = 1\nseed = 2\n");
        CHECK(flux2_program().values_of("seed", {}).empty());
    }
}

TEST_CASE("a wrong value says where it is set") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", "\nwidth = many\n[wide]\nheight = 5x\n");
    const std::string file = (folder / "flux2.ini").string();
    const auto run = [&](const std::string& more) {
        return test::run_program("FLUX2_CONFIG=" + file + " " + more + " < /dev/null");
    };
    const std::string flux2 = test::flux2_path() + " plan ";
    auto result = run(flux2);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("(--width is set in " + file + ":2)") != std::string::npos);
    result = run(flux2 + "-W 64 --preset wide");
    CHECK(result.err.find("(--height is set in " + file + ":4)") != std::string::npos);
    result = run("FLUX2_ARG_STEPS=x " + flux2 + "-W 64");
    CHECK(result.err.find("(--steps is set in FLUX2_ARG_STEPS)") != std::string::npos);
    result = run(flux2 + "-W x");
    CHECK(result.err.find("is set in") == std::string::npos);
    // What others measure or repeat does not depend on it.
    CHECK(run(test::flux2_path() + " devices").exit_code == 0);
    CHECK(run(test::flux2_path() + " info --help").exit_code == 0);
}

TEST_CASE("flux2 config prints what holds and from where") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "flux2.ini", "width = 512\n[tall]\nheight = 768\nlora = a\nlora = b");
    const std::string file = (folder / "flux2.ini").string();
    const auto result =
        test::run_program("FLUX2_CONFIG=" + file + " FLUX2_ARG_STEPS=8 " + test::flux2_path() +
                          " config --preset tall -s 7 < /dev/null");
    CHECK(result.exit_code == 0);
    for (const std::string& line :
         {"file of settings: " + file, std::string("preset: tall"),
          "width = 512    from " + file + ":1", "height = 768    from " + file + ":3",
          "lora = a, b    from " + file + ":5", std::string("steps = 8    from FLUX2_ARG_STEPS"),
          std::string("seed = 7    from the command line")}) {
        CAPTURE(line);
        CHECK(result.out.find(line + "\n") != std::string::npos);
    }
}

TEST_CASE("-hf is one option, also among others of one letter") {
    const test::OptionProgram flux2 = flux2_program();
    CHECK(flux2.source_of("hf-repo", {"-hf", "a/b:Q4_0", "-s", "7"}).values ==
          std::vector<std::string>{"a/b:Q4_0"});
    CHECK(flux2.source_of("seed", {"-hf", "a/b:Q4_0", "-s", "7"}).values ==
          std::vector<std::string>{"7"});
}

}  // namespace flux2::cli
