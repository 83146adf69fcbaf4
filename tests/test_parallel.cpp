#include "base/parallel.hpp"
#include "base/system.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

TEST_CASE("every item is visited once, by any number of threads") {
    for (const int n_threads : {0, 1, 2, 7}) {
        std::vector<std::atomic<int>> visits(100);
        parallel_for(visits.size(), n_threads, [&](size_t i) { ++visits[i]; });
        for (const std::atomic<int>& count : visits) {
            CHECK(count == 1);
        }
    }
    parallel_for(0, 4, [](size_t) { FAIL("there is nothing to visit"); });
}

TEST_CASE("an exception comes out, and what has not begun is left out") {
    std::atomic<int> n_begun = 0;
    const auto work = [&](size_t i) {
        ++n_begun;
        if (i == 3) {
            throw std::runtime_error("the fourth");
        }
    };
    CHECK_THROWS_WITH_AS(parallel_for(1'000'000, 2, work), "the fourth", std::runtime_error);
    CHECK(n_begun >= 4);
    CHECK(n_begun < 1'000'000);
}

TEST_CASE("the machine's cores and memory are told") {
    CHECK(physical_cores() >= 1);
    CHECK(physical_cores() <= static_cast<int>(std::thread::hardware_concurrency()));
#ifdef __linux__
    CHECK(available_ram_bytes() > 1'000'000);
#endif
}

}  // namespace
}  // namespace flux2
