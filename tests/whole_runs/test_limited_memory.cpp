// flux2-train with a limit on its address space (ulimit -v): it ends with a sentence, not by a
// signal. Not for the sanitizers, which take more address space than any limit.
#include <flux2/error.hpp>
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

#if defined(__linux__)
constexpr bool kCanLimit = true;
#else
constexpr bool kCanLimit = false;
#endif

TEST_CASE("training without memory says so and keeps the state" * doctest::skip(!kCanLimit)) {
    const test::TemporaryFolder folder;
    const std::string model = test::tiny_model();
    const std::string out = (folder / "out").string();
    const std::string command = "'" + test::train_path() + "' -m '" + model + "' -d '" + model +
                                "/blueprint-dataset' --resolution 64 --network_dim 4 --threads 1 "
                                "--cache '" +
                                (folder / "cache").string() + "' --output_dir '" + out +
                                "' --resume '" + out + "' --max_train_steps ";
    REQUIRE(test::run_program(command + "2").exit_code == 0);
    const fs::path state = folder / "out/lora-step00000002.state";
    REQUIRE(fs::exists(state));

    const int no_memory = exit_code(ErrorKind::out_of_memory);
    int n_ended = 0;
    int code = no_memory;
    for (int megabytes = 100; megabytes <= 1000 && code == no_memory; megabytes += 20) {
        const auto result = test::run_program("ulimit -v " + std::to_string(1000 * megabytes) +
                                              "; " + command + "4");
        CAPTURE(megabytes);
        CAPTURE(result.err);
        code = result.exit_code;
        CHECK((code == no_memory || code == 0));
        CHECK(fs::exists(state));
        CHECK((code == 0 || result.err.find("memory") != std::string::npos));
        n_ended += code == no_memory ? 1 : 0;
    }
    CHECK(code == 0);
    CHECK(n_ended > 2);
}

}  // namespace
}  // namespace flux2
