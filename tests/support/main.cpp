// The test runner; every case lives in a test_*.cpp file.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

namespace {

// The settings of whoever runs the tests must not change them.
[[maybe_unused]] const int no_settings = setenv("FLUX2_CONFIG", "", 1);

#if defined(FLUX2_SANITIZED)
// Of this process the address sanitizer has read them. It looks for leaks here; at the end of each
// program that a test runs that would take seconds.
const char* const sanitizer_options = std::getenv("ASAN_OPTIONS");
[[maybe_unused]] const int no_leaks =
    setenv("ASAN_OPTIONS",
           (std::string(sanitizer_options != nullptr ? sanitizer_options : "") + ":detect_leaks=0")
               .c_str(),
           1);
#endif

}  // namespace

#if defined(FLUX2_SANITIZED)
// ggml loses a buffer's memory when the object that describes it cannot be allocated, as some cases
// arrange it. A buffer that we lose is still reported, by that object.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
    return "leak:ggml_aligned_malloc\n";
}
#endif
