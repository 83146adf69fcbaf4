// A loop over independent items in several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace flux2 {

// Calls f(i) for every i below n, from up to n_threads threads. When one throws, the rest is left
// out and the first exception comes out here.
template <typename F>
void parallel_for(size_t n, int n_threads, const F& f) {
    std::atomic<size_t> next = 0;
    std::exception_ptr thrown;
    std::mutex mutex;
    const auto work = [&] {
        try {
            for (size_t i = next++; i < n; i = next++) {
                f(i);
            }
        } catch (...) {
            next = n;
            const std::lock_guard lock(mutex);
            thrown = thrown ? thrown : std::current_exception();
        }
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(n, static_cast<size_t>(std::max(n_threads, 1))); ++i) {
        threads.emplace_back(work);
    }
    work();
    threads.clear();  // joins them
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}

}  // namespace flux2
