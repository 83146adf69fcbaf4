// Wall-clock time of a piece of work.
#pragma once

#include <chrono>

namespace flux2::cli {

template <typename Work>
double seconds_of(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace flux2::cli
