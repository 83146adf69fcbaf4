// How threads share the work of a node.
#include "compute/shared_work.hpp"

#include "base/random.hpp"
#include "compute/cpu/attention.hpp"
#include "compute/cpu/group_norm.hpp"
#include "compute/cpu/winograd.hpp"
#include "compute/graph.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace flux2 {
namespace {

// Calls f(thread) in that many threads at once, as ggml does with the function of a node.
void run_threads(int n_threads, const std::function<void(int)>& f) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
        threads.emplace_back(f, i);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST_CASE("every item of a node is done once, by any number of threads, node after node") {
    SharedWork work;
    for (const int n_threads : {1, 2, 3, 7}) {
        for (const int64_t n : {0, 1, 5, 64, 1000}) {
            for (const PieceSize size : {PieceSize{}, PieceSize{.least = 3, .most = 10}}) {
                CAPTURE(n_threads);
                CAPTURE(n);
                std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
                std::atomic<int> n_wrong_sizes = 0;
                run_threads(n_threads, [&](int) {
                    const auto visit = [&](int64_t begin, int64_t end) {
                        const bool is_last = end == n;
                        const bool fits =
                            end - begin <= size.most && (is_last || end - begin >= size.least);
                        n_wrong_sizes += fits ? 0 : 1;
                        for (int64_t i = begin; i < end; ++i) {
                            ++visits[static_cast<size_t>(i)];
                        }
                    };
                    share_pieces(&work, n, n_threads, size, visit);
                    work.leave(n_threads);
                });
                int n_once = 0;
                for (const std::atomic<int>& count : visits) {
                    n_once += count == 1 ? 1 : 0;
                }
                CHECK(n_once == n);
                CHECK(n_wrong_sizes == 0);
            }
        }
    }
}

std::vector<int64_t> piece_sizes(int64_t n, int n_threads, const PieceSize& size) {
    SharedWork work;
    std::vector<int64_t> sizes;
    share_pieces(&work, n, n_threads, size,
                 [&](int64_t begin, int64_t end) { sizes.push_back(end - begin); });
    return sizes;
}

TEST_CASE("pieces are a quarter of a thread's share of what is left") {
    // 40 / 8, 35 / 8, 31 / 8, 28 / 8, 25 / 8; then 22 / 8 and less, but none below 40 / 16.
    std::vector<int64_t> expected = {5, 4, 3, 3, 3};
    expected.insert(expected.end(), 11, 2);
    CHECK(piece_sizes(40, 2, {}) == expected);
    // At most 4, down to 64 / 16, then 60 / 16, but none below 96 / 32.
    expected.assign(9, 4);
    expected.insert(expected.end(), 20, 3);
    CHECK(piece_sizes(96, 4, {.most = 4}) == expected);
    CHECK(piece_sizes(7, 2, {.least = 3}) == std::vector<int64_t>{3, 3, 1});
}

TEST_CASE("a thread that is held up leaves the rest of the work to the others") {
    constexpr int kThreads = 3;
    constexpr int64_t kItems = 120;
    SharedWork work;
    std::atomic<int64_t> n_slow = 0;
    std::atomic<int64_t> n_fast = 0;
    std::atomic<bool> slow_has_begun = false;
    run_threads(kThreads, [&](int thread) {
        if (thread == 0) {
            share_pieces(&work, kItems, kThreads, {}, [&](int64_t begin, int64_t end) {
                n_slow += end - begin;
                slow_has_begun = true;
                while (n_slow + n_fast < kItems) {
                    std::this_thread::yield();
                }
            });
        } else {
            while (!slow_has_begun) {
                std::this_thread::yield();
            }
            share_items(&work, kItems, kThreads, [&](int64_t) { ++n_fast; });
        }
        work.leave(kThreads);
    });
    CHECK(n_slow == kItems / (4 * kThreads));
    CHECK(n_fast == kItems - n_slow);
}

// Attention, then a convolution and a norm of random values.
std::vector<float> results_by(int n_threads) {
    constexpr int64_t width = 32, n_head = 2, n = 99, side = 17;
    const Backend backend("CPU", n_threads);
    Graph g(backend, 64);
    std::vector<ggml_tensor*> inputs;
    const auto input = [&](const char* name, std::initializer_list<int64_t> ne) {
        return inputs.emplace_back(g.input_f32(name, ne));
    };
    ggml_tensor* q = input("q", {width, n_head, n});
    ggml_tensor* k = input("k", {width, n_head, n});
    ggml_tensor* v = input("v", {width, n_head, n});
    ggml_tensor* attended = cpu::attention(g, q, k, v, nullptr, false);
    ggml_tensor* filter = input("filter", {3, 3, width, width});
    ggml_tensor* bias = input("bias", {width});
    ggml_tensor* x = input("x", {width, side, side});
    ggml_tensor* convolved = cpu::winograd_conv(g, filter, bias, x, nullptr, 1);
    ggml_tensor* normalised = cpu::group_norm(g, bias, bias, convolved, {.silu = true});
    ggml_tensor* both = ggml_concat(g, ggml_reshape_1d(g, attended, ggml_nelements(attended)),
                                    ggml_reshape_1d(g, normalised, ggml_nelements(normalised)), 0);
    g.finish(both);
    for (size_t i = 0; i < inputs.size(); ++i) {
        g.set(inputs[i],
              draw_normal(Generator::cpu_f32, i, static_cast<size_t>(ggml_nelements(inputs[i]))));
    }
    g.compute();
    g.compute();  // the second time with what the first one left
    return g.read(both).data;
}

TEST_CASE("results do not depend on the number of threads") {
    const std::vector<float> expected = results_by(1);
    for (const int n_threads : {2, 3, 5}) {
        CHECK(results_by(n_threads) == expected);
    }
}

}  // namespace
}  // namespace flux2
