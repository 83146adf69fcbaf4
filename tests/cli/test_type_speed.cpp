// Which type of weights is proposed. Sizes of a billion weights: BF16 2 GB, Q8_0 1.0625 GB,
// Q4_0 0.5625 GB, Q2_K 0.328125 GB.
#include "measure/type_speed.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2::cli {
namespace {

TypeNeed with_memory(uint64_t bytes) {
    return {.model = "a model", .n_weights = 1'000'000'000, .usable_bytes = bytes};
}

std::vector<TypeSpeed> types_with_bf16_at(double flops) {
    return {{.type = "Q2_K", .bits = 2.625, .flops = 2000, .error = 0.3},
            {.type = "Q8_0", .bits = 8.5, .flops = 1000, .error = 0.006},
            {.type = "Q4_0", .bits = 4.5, .flops = 990, .error = 0.09},
            {.type = "BF16", .bits = 16, .flops = flops, .error = 0.002}};
}

std::string proposed(const std::vector<TypeSpeed>& types, uint64_t bytes) {
    return propose_type(types, with_memory(bytes)).type.type;
}

TEST_CASE("of types that are within 5 % of the fastest the most precise is proposed") {
    constexpr uint64_t kPlenty = 10'000'000'000;
    CHECK(proposed(types_with_bf16_at(960), kPlenty) == "BF16");
    CHECK(proposed(types_with_bf16_at(950), kPlenty) == "BF16");
    CHECK(proposed(types_with_bf16_at(949), kPlenty) == "Q8_0");
    CHECK(proposed(types_with_bf16_at(960), 0) == "BF16");  // memory is not known
}

TEST_CASE("a type whose weights do not fit into memory is not proposed") {
    const auto types = types_with_bf16_at(1200);
    CHECK(proposed(types, 2'000'000'000) == "BF16");
    CHECK(proposed(types, 1'999'999'999) == "Q8_0");
    CHECK(proposed(types, 1'062'499'999) == "Q4_0");
    // A type that spoils pictures is for those who have no other choice.
    CHECK(proposed(types, 562'499'999) == "Q2_K");
    const TypeProposal none = propose_type(types, with_memory(300'000'000));
    CHECK(none.type.type == "Q2_K");
    CHECK(!none.fits);
}

TEST_CASE("the line says what is proposed and why") {
    const auto line = [](const std::vector<TypeSpeed>& types, uint64_t bytes) {
        const TypeNeed need = with_memory(bytes);
        return to_text(propose_type(types, need), need);
    };
    CHECK(line(types_with_bf16_at(960), 4'000'000'000) ==
          "proposal: BF16 (a model takes 2 GB of 4 GB; more precise than Q8_0, the fastest "
          "that fits, and at most 5 % slower)\n");
    CHECK(line(types_with_bf16_at(960), 1'500'000'000) ==
          "proposal: Q8_0 (a model takes 1.06 GB of 1.5 GB; the fastest that fits)\n");
    CHECK(line(types_with_bf16_at(960), 200'000'000) ==
          "proposal: Q2_K (a model takes 0.32 GB of 0.2 GB; no type fits, and this is the "
          "smallest)\n");
}

}  // namespace
}  // namespace flux2::cli
