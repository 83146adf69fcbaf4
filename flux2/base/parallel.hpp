// A loop over independent items in several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace flux2 {

// Calls f(i, thread) for every i below n, in ascending order, from up to n_threads threads; from
// fewer where the system starts no more of them.
// `thread` counts from 0, the calling thread. When f throws, the remaining items are skipped and
// the exception is rethrown here (of several, that of the lowest thread), so f can cancel the loop
// by throwing.
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
    std::vector<std::future<void>> others;  // their destructors wait for the threads
    for (size_t i = 1; i < std::min(n, static_cast<size_t>(std::max(n_threads, 1))); ++i) {
        // Where no thread can be started, get() calls it.
        others.push_back(std::async(std::launch::async | std::launch::deferred, work, i));
    }
    work(0);
    for (std::future<void>& other : others) {
        other.get();
    }
}

}  // namespace flux2
