// The options of flux2-rpc-server in its file of settings and in variables.
#include "rpc_server/serve_options.hpp"
#include "support/option_walk.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2::cli {
namespace {

// Lines before the first section are about pictures: a device to draw on is none to lend.
const test::OptionProgram kServeProgram = {describe_serve_options, false};

}  // namespace

TEST_CASE("every option for lending devices is taken from the strongest place that sets it") {
    CHECK(test::check_every_option(kServeProgram) == 6);
}

TEST_CASE("wrong lines for lending devices are told with file and line") {
    test::check_wrong_lines(kServeProgram, "no-cache");
}

}  // namespace flux2::cli
