// The plain forms of our own nodes against ggml's operations; kernels are compared with both on a
// device, by flux2 selftest --ops.
#include "verify/op_check.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace flux2 {
namespace {

TEST_CASE("the plain form of every operation of ours agrees with ggml's") {
    std::ostringstream lines;
    cli::Report report(lines);
    cli::check_operations("CPU", 0, report);
    CHECK(report.n_compared() > 50);
    CHECK_MESSAGE(report.n_failed() == 0, lines.str());
}

}  // namespace
}  // namespace flux2
