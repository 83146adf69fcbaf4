#include "base/byte_budget.hpp"
#include "base/parallel.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace flux2 {
namespace {

TEST_CASE("threads together never take more than the budget, unless one alone takes more") {
    ByteBudget budget(100);
    std::atomic<uint64_t> taken = 0;
    std::atomic<int> n_wrong = 0;
    std::atomic<int> n_done = 0;
    parallel_for(2000, 8, [&](size_t i, size_t) {
        const uint64_t bytes = i % 50 == 0 ? 250 : i % 40 + 1;
        const ByteBudget::Share share = budget.take(bytes);
        const uint64_t now = taken += bytes;
        n_wrong += now > std::max<uint64_t>(bytes, 100) ? 1 : 0;
        taken -= bytes;
        ++n_done;
    });
    CHECK(n_wrong == 0);
    CHECK(n_done == 2000);
}

TEST_CASE("an exception gives back what was taken") {
    ByteBudget budget(10);
    CHECK_THROWS_AS(
        [&] {
            const ByteBudget::Share share = budget.take(10);
            throw std::runtime_error("in between");
        }(),
        std::runtime_error);
    const ByteBudget::Share share = budget.take(10);  // would wait for ever
    CHECK(budget.bytes() == 10);
}

}  // namespace
}  // namespace flux2
