#include "convert_options.hpp"
#include "support/option_walk.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2::convert {
namespace {

// Lines before the first section are about pictures: options of these names mean something else
// here.
const test::OptionProgram kConvertProgram = {describe_convert_options, false};

}  // namespace

TEST_CASE("every option of the converter is taken from the strongest place that sets it") {
    CHECK(test::check_every_option(kConvertProgram) > 20);
}

TEST_CASE("wrong lines for the converter are told with file and line") {
    test::check_wrong_lines(kConvertProgram, "verify");
}

TEST_CASE("the converter leaves out lines that are not under its name") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    test::write_file(file, "type = Q8_0\n[flux2]\nlora = a\n[flux2-convert]\nverify = yes\n");
    const test::Variable config("FLUX2_CONFIG", file);
    CHECK(kConvertProgram.values_of("type", {}).empty());
    CHECK(kConvertProgram.values_of("lora", {}).empty());
    CHECK(kConvertProgram.values_of("verify", {}).size() == 1);
}

TEST_CASE("a wrong value for the converter says where it is set") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    test::write_file(file, "[flux2-convert]\nthreads = many\n");
    const test::ProgramResult result =
        test::run_program("FLUX2_CONFIG=" + file + " " + test::convert_path() + " a -o b");
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("(--threads is set in " + file + ":2)") != std::string::npos);
}

}  // namespace flux2::convert
