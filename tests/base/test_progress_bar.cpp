#include "base/progress_bar.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

TEST_CASE("times are short to read") {
    CHECK(readable_seconds(0) == "0.0 s");
    CHECK(readable_seconds(1.24) == "1.2 s");
    CHECK(readable_seconds(59.9) == "59.9 s");
    CHECK(readable_seconds(60) == "1:00 min");
    CHECK(readable_seconds(185.7) == "3:05 min");
    CHECK(readable_seconds(7200) == "120:00 min");
}

TEST_CASE("a bar is as full as its share, and tells the time left once there is one") {
    CHECK(progress_bar("x", 0, "", 5) == "x  [                        ]");
    CHECK(progress_bar("x", 0.5, "", 5) == "x  [============            ]  5.0 s left");
    CHECK(progress_bar("x", 0.25, "1/4", 60) == "x  [======                  ] 1/4  3:00 min left");
    CHECK(progress_bar("x", 1, "", 5) == "x  [========================]  0.0 s left");
}

TEST_CASE("a share beyond its range gives an empty or a full bar") {
    CHECK(progress_bar("x", -1, "", 5) == progress_bar("x", 0, "", 5));
    CHECK(progress_bar("x", 1e300, "", 5) == progress_bar("x", 1, "", 5));
}

}  // namespace
}  // namespace flux2
