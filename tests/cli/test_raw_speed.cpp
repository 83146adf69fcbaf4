// Multiplies timed alone.
#include "measure/raw_speed.hpp"

#include "compute/backend.hpp"
#include "compute/graph_work.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2::cli {
namespace {

TEST_CASE("every type has a raw speed, and shapes that hardly matter are not timed") {
    const Backend backend("CPU", 1);
    // IQ2_XS cannot be written without an importance matrix.
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                 GGML_TYPE_Q4_K, GGML_TYPE_IQ2_XS}) {
        CAPTURE(std::string(ggml_type_name(type)));
        const GraphWork work{.flops = 0, .mat_muls = {{{type, 256, 64, 32}, 10}}};
        const auto seconds = raw_seconds(backend, work, /*repacks=*/true);
        REQUIRE(seconds);
        CHECK(*seconds > 0);
        CHECK(*seconds < 1);  // 10 million operations
    }
    // Its weights alone would take 4 TB.
    const MatMul huge{GGML_TYPE_F32, 1'000'000, 1'000'000, 1};
    const MatMul wide{GGML_TYPE_F32, 64, 64, 1'000'000'000};
    const GraphWork work{.flops = 0, .mat_muls = {{huge, 1}, {wide, 1000}}};
    CHECK(raw_seconds(backend, work, /*repacks=*/true));
}

TEST_CASE("work without multiplies has no raw speed") {
    CHECK(!raw_seconds(Backend("CPU", 1), {.flops = 1e9, .mat_muls = {}}, /*repacks=*/true));
}

}  // namespace
}  // namespace flux2::cli
