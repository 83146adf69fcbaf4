// The test runner; every case lives in a test_*.cpp file.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>

namespace {

// The settings of whoever runs the tests must not change them.
[[maybe_unused]] const int no_settings = setenv("FLUX2_CONFIG", "", 1);

}  // namespace
