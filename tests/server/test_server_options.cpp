// The options of flux2-server in its file of settings and in variables.
#include "http/server_options.hpp"
#include "support/option_walk.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2::server {
namespace {

const test::OptionProgram kServerProgram = {describe_server_options};

}  // namespace

TEST_CASE("every option of the server is taken from the strongest place that sets it") {
    CHECK(test::check_every_option(kServerProgram) > 30);
}

TEST_CASE("wrong lines for the server are told with file and line") {
    test::check_wrong_lines(kServerProgram, "metrics");
}

TEST_CASE("the server leaves out lines about pictures that are not under its name") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    test::write_file(file, "width = 768\ndevice = CPU\n[portrait]\nport = 1\n[flux2]\nport = 2\n");
    const test::Variable config("FLUX2_CONFIG", file);
    CHECK(kServerProgram.values_of("device", {}) == std::vector<std::string>{"CPU"});
    CHECK(kServerProgram.values_of("port", {}).empty());
}

TEST_CASE("a wrong value for the server says where it is set") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "flux2.ini").string();
    test::write_file(file, "[flux2-server]\nport = 99999\n");
    const test::ProgramResult result =
        test::run_program("FLUX2_CONFIG=" + file + " " + test::server_path() + " < /dev/null");
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("(--port is set in " + file + ":2)") != std::string::npos);
}

}  // namespace flux2::server
