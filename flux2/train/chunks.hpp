// Long arrays of parameters in several threads.
#pragma once

#include "base/parallel.hpp"

#include <algorithm>
#include <cstddef>

namespace flux2 {

// What a thread takes at a time. Sums are made per chunk, then over the chunks in order.
constexpr size_t kParameterChunk = 1 << 16;

// Calls f(first, n, chunk) for every chunk.
template <typename F>
void for_chunks(size_t n_values, int n_threads, const F& f) {
    parallel_for((n_values + kParameterChunk - 1) / kParameterChunk, n_threads,
                 [&](size_t chunk, size_t) {
                     const size_t first = chunk * kParameterChunk;
                     f(first, std::min(kParameterChunk, n_values - first), chunk);
                 });
}

}  // namespace flux2
