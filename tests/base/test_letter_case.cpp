#include "base/letter_case.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

TEST_CASE("letters from A to Z change their case, everything else stays") {
    CHECK(to_lower("Klein-4B.GGUF") == "klein-4b.gguf");
    CHECK(to_upper("q4_k_m") == "Q4_K_M");
    CHECK(to_lower("@[`{AZaz09") == "@[`{azaz09");
    CHECK(to_upper("@[`{AZaz09") == "@[`{AZAZ09");
    CHECK(to_lower("\xc3\x84\xff") == "\xc3\x84\xff");  // an umlaut, and no UTF-8 at all
    CHECK(to_upper("\xc3\xa4\xff") == "\xc3\xa4\xff");
    CHECK(to_lower("").empty());
}

}  // namespace
}  // namespace flux2
