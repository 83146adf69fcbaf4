#include "commands/ordered_work.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace flux2::cli {
namespace {

using namespace std::chrono_literals;

TEST_CASE("results are taken in the order of the pieces, whoever is ready first") {
    for (const size_t n_workers : {1u, 2u, 3u, 8u}) {
        CAPTURE(n_workers);
        OrderedWork work(20, n_workers);
        std::vector<std::string> taken;
        std::atomic<int> n_at_once = 0;
        work.run([&](size_t, size_t piece) {
            // Early pieces take longest.
            std::this_thread::sleep_for(piece % 3 == 0 ? 5ms : 0ms);
            for (const char* part : {"a", "b"}) {
                work.hand_over(piece, [&, piece, part] {
                    CHECK(++n_at_once == 1);
                    taken.push_back(std::to_string(piece) + part);
                    --n_at_once;
                });
            }
        });
        std::vector<std::string> expected;
        for (size_t piece = 0; piece < 20; ++piece) {
            expected.push_back(std::to_string(piece) + "a");
            expected.push_back(std::to_string(piece) + "b");
        }
        CHECK(taken == expected);
    }
}

// With two workers: piece 1 fails at once while piece 0 is under way.
TEST_CASE("a piece that fails ends the work after those before it") {
    for (const size_t n_workers : {1u, 2u, 4u}) {
        CAPTURE(n_workers);
        OrderedWork work(100, n_workers);
        std::vector<size_t> taken;
        std::atomic<size_t> n_begun = 0;
        const auto run = [&] {
            work.run([&](size_t, size_t piece) {
                ++n_begun;
                if (piece == 0) {
                    std::this_thread::sleep_for(20ms);
                }
                work.hand_over(piece, [&, piece] { taken.push_back(piece); });
                if (piece >= 1) {
                    throw std::runtime_error("piece " + std::to_string(piece));
                }
            });
        };
        CHECK_THROWS_WITH(run(), "piece 1");
        CHECK(taken == std::vector<size_t>{0, 1});
        CHECK(n_begun <= 2 * n_workers);
    }
}

TEST_CASE("what is thrown while a result is taken ends the work, and others learn of it") {
    OrderedWork work(100, 2);
    std::vector<size_t> taken;
    std::atomic<size_t> n_useless = 0;
    const auto run = [&] {
        work.run([&](size_t, size_t piece) {
            work.hand_over(piece, [&, piece] {
                if (piece == 3) {
                    throw std::runtime_error("no room");
                }
                taken.push_back(piece);
            });
            if (piece >= 3) {
                while (!work.is_useless(piece)) {
                    std::this_thread::sleep_for(1ms);
                }
                ++n_useless;
            }
        });
    };
    CHECK_THROWS_WITH(run(), "no room");
    CHECK(taken == std::vector<size_t>{0, 1, 2});
    CHECK(n_useless >= 1);
}

TEST_CASE("workers do not run ahead of a slow piece without limit") {
    OrderedWork work(50, 2);
    std::atomic<size_t> n_begun = 0;
    std::atomic<size_t> begun_meanwhile = 0;
    work.run([&](size_t, size_t piece) {
        ++n_begun;
        if (piece == 0) {
            CHECK(work.is_next(0));
            CHECK_FALSE(work.is_next(1));
            std::this_thread::sleep_for(50ms);
            begun_meanwhile = n_begun.load();
        }
    });
    CHECK(begun_meanwhile <= 4);
    CHECK(n_begun == 50);
}

}  // namespace
}  // namespace flux2::cli
