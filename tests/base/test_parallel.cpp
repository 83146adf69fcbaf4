#include "base/check.hpp"
#include "base/parallel.hpp"
#include "base/system.hpp"
#include "support/support.hpp"

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
        parallel_for(visits.size(), n_threads, [&](size_t i, size_t) { ++visits[i]; });
        for (const std::atomic<int>& count : visits) {
            CHECK(count == 1);
        }
    }
    parallel_for(0, 4, [](size_t, size_t) { FAIL("there is nothing to visit"); });
}

TEST_CASE("threads have numbers, the calling one 0") {
    std::vector<std::atomic<int>> running(3);
    std::atomic<int> n_shared = 0;
    std::atomic<int> n_misnamed = 0;
    const auto caller = std::this_thread::get_id();
    parallel_for(1000, 3, [&](size_t, size_t thread) {
        n_shared += ++running.at(thread) > 1 ? 1 : 0;
        n_misnamed += (thread == 0) != (std::this_thread::get_id() == caller) ? 1 : 0;
        --running.at(thread);
    });
    CHECK(n_shared == 0);
    CHECK(n_misnamed == 0);
}

TEST_CASE("an exception comes out, and what has not begun is left out") {
    std::atomic<int> n_begun = 0;
    const auto work = [&](size_t i, size_t) {
        ++n_begun;
        if (i == 3) {
            throw std::runtime_error("the fourth");
        }
    };
    CHECK_THROWS_WITH_AS(parallel_for(1'000'000, 2, work), "the fourth", std::runtime_error);
    CHECK(n_begun >= 4);
    CHECK(n_begun < 1'000'000);
}

TEST_CASE("a flag that is raised on the way cancels the loop") {
    std::atomic<bool> cancel = false;
    std::atomic<int> n_done = 0;
    const auto error = test::error_of([&] {
        parallel_for(1'000'000, 2, [&](size_t, size_t) {
            check(!cancel, ErrorKind::cancelled, "cancelled");
            if (++n_done == 10) {
                cancel = true;
            }
        });
    });
    CHECK(error.kind == ErrorKind::cancelled);
    CHECK(n_done >= 10);
    CHECK(n_done < 1'000'000);
}

TEST_CASE("the machine's cores are told") {
    CHECK(physical_cores() >= 1);
    CHECK(physical_cores() <= static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace flux2
