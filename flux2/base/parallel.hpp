// A loop over independent items in several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace flux2 {

// Calls f(i, thread) for every i below n, in rising order, from up to n_threads threads. They count
// from 0, which is the calling one. When f throws, what has not begun is left out and the exception
// comes out here, of several the one of the lowest thread; so f cancels the loop by throwing.
template <typename F>
void parallel_for(size_t n, int n_threads, const F& f) {
    std::atomic<size_t> next = 0;
    const auto work = [&](size_t thread) {
        try {
            for (size_t i = next++; i < n; i = next++) {
                f(i, thread);
            }
        } catch (...) {
            next = n;
            throw;
        }
    };
    std::vector<std::future<void>> others;  // they wait for their threads when they go
    for (size_t i = 1; i < std::min(n, static_cast<size_t>(std::max(n_threads, 1))); ++i) {
        others.push_back(std::async(std::launch::async, work, i));
    }
    work(0);
    for (std::future<void>& other : others) {
        other.get();
    }
}

}  // namespace flux2
