// Our own operations against ggml's: the plain forms of kernels, and the forms for the CPU at hand.
// Kernels are compared with both on a device, by flux2 selftest --ops.
#include "verify/op_check.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace flux2 {
namespace {

template <class Check>
void check_all_within_limits(const Check& compare) {
    std::ostringstream lines;
    cli::Report report(lines);
    compare(report);
    CHECK(report.n_compared() > 300);
    CHECK_MESSAGE(report.n_failed() == 0, lines.str());
}

TEST_CASE("the plain form of every operation of ours agrees with ggml's") {
    check_all_within_limits([](cli::Report& report) { cli::check_plain_forms(report); });
}

TEST_CASE("the CPU's form of every operation and layout of weights agrees with ggml's") {
    check_all_within_limits([](cli::Report& report) { cli::check_operations("CPU", 0, report); });
}

}  // namespace
}  // namespace flux2
