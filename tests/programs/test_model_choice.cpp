// Without a model option the program takes the model that comes with it, and says so.
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::has;

const std::string kFlux2 = test::flux2_path();

TEST_CASE("the bundled model is the default, and --variant chooses in it") {
    auto result = test::run_program(kFlux2 + " plan --device CPU");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "no model named (-m FOLDER), so the bundled toy: "));
    CHECK(has(result.err, "flux2-tiny-bf16.gguf"));
    // Its own default size: 256x256 in the file's metadata.
    CHECK(result.out.rfind("256x256, 4 steps\n", 0) == 0);

    result = test::run_program(kFlux2 + " plan --variant base");
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "flux2-tiny-base-q6_k.gguf"));
    CHECK(result.out.rfind("256x256, 50 steps\n", 0) == 0);
}

TEST_CASE("naming any part leaves the bundled model out") {
    const auto result = test::run_program(kFlux2 + " plan --vae " +
                                          test::fixture("klein/vae.safetensors").string());
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "no transformer"));
    CHECK_FALSE(has(result.err, "bundled"));
}

TEST_CASE("an installed program looks beside itself first") {
    const test::TemporaryFolder folder;
    fs::create_directories(folder / "bin");
    fs::create_directories(folder / "share/flux2/models/tiny");
    fs::copy_file(kFlux2, folder / "bin/flux2");
    // The folder there is empty, so the complaint tells where it looked.
    const auto result = test::run_program((folder / "bin/flux2").string() + " plan");
    CHECK(result.exit_code == 3);
    CHECK(has(result.err, "share/flux2/models/tiny"));
}

}  // namespace
}  // namespace flux2
