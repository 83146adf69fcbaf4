#include "parallel.hpp"

#include "base/check.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace flux2::convert {

void for_each_parallel(size_t n, int n_threads, const std::atomic<bool>& cancel,
                       const std::function<void(size_t i, size_t thread)>& work,
                       const std::function<void()>& tick) {
    std::atomic<size_t> next = 0;
    std::atomic<bool> stop = false;
    std::mutex mutex;
    std::condition_variable done;
    std::exception_ptr failure;
    auto running = static_cast<size_t>(n_threads);

    const auto run = [&](size_t thread) {
        std::exception_ptr caught;
        try {
            for (size_t i = next++; i < n && !stop && !cancel; i = next++) {
                work(i, thread);
            }
        } catch (...) {
            caught = std::current_exception();
            stop = true;
        }
        const std::lock_guard lock(mutex);
        if (caught && !failure) {
            failure = caught;
        }
        if (--running == 0) {
            done.notify_one();
        }
    };
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < static_cast<size_t>(n_threads); ++thread) {
        threads.emplace_back(run, thread);
    }
    {
        std::unique_lock lock(mutex);
        while (!done.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
            tick();
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    check(!cancel, ErrorKind::cancelled, "cancelled; nothing was written");
}

}  // namespace flux2::convert
