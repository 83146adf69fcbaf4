// Work on many pieces with all cores.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace flux2::convert {

// Calls work(i, thread) for every i in [0, n), in rising order, from n_threads threads, and tick()
// about ten times a second from the calling one. The first exception stops everything and is thrown
// again here; a raised cancel flag throws cancelled.
void for_each_parallel(size_t n, int n_threads, const std::atomic<bool>& cancel,
                       const std::function<void(size_t i, size_t thread)>& work,
                       const std::function<void()>& tick);

}  // namespace flux2::convert
