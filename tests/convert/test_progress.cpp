#include "progress.hpp"

#include <doctest/doctest.h>

namespace flux2::convert {
namespace {

TEST_CASE("a conversion tells its share, its speed and the time left") {
    CHECK(progress_line("x.gguf", 250'000'000, 1'000'000'000, 2) ==
          "x.gguf  [======                  ] 25 %, 125 MB/s  6.0 s left");
    CHECK(progress_line("x.gguf", 0, 1000, 2) == "x.gguf  [                        ] 0 %, 0 MB/s");
    CHECK(progress_line("x.gguf", 0, 0, 0) == "x.gguf  [                        ] 0 %, 0 MB/s");
}

}  // namespace
}  // namespace flux2::convert
