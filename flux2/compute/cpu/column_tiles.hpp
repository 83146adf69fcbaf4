// How threads share the product of many tokens and a matrix whose columns are converted first.
#pragma once

#include "compute/shared_work.hpp"

#include <ggml.h>

#include <algorithm>
#include <cstdint>

namespace flux2::cpu {

// A part of a product: results [column, column + n_columns) of some tokens.
struct ColumnTile {
    int64_t column, n_columns;
    int64_t token, n_tokens;
};

// How many parts tokens are shared in: some where there are too few tiles for all threads.
inline int64_t count_token_parts(int64_t n_tokens, int64_t n_tiles, int n_threads) {
    constexpr int64_t kLeastTokens = 40;
    constexpr int64_t kTilesPerThread = 4;
    int64_t n_parts = 1;
    while (n_tiles * n_parts % n_threads != 0 && n_tiles * n_parts < kTilesPerThread * n_threads &&
           n_parts < n_threads && n_tokens / (n_parts + 1) >= kLeastTokens) {
        ++n_parts;
    }
    return n_parts;
}

// For functions of nodes, whose last argument is `work`: calls f for the tiles of y, each at most
// `most_columns` wide. At most once in a function.
template <typename F>
void share_tiles(void* work, const ggml_tensor& y, int64_t most_columns, int n_threads,
                 const F& f) {
    const int64_t n_tiles = (y.ne[0] + most_columns - 1) / most_columns;
    const int64_t n_parts = count_token_parts(y.ne[1], n_tiles, n_threads);
    share_items(work, n_tiles * n_parts, n_threads, [&](int64_t i) {
        const int64_t column = i / n_parts * most_columns;
        const int64_t part = i % n_parts;
        const int64_t token = y.ne[1] * part / n_parts;
        f(ColumnTile{.column = column,
                     .n_columns = std::min(most_columns, y.ne[0] - column),
                     .token = token,
                     .n_tokens = y.ne[1] * (part + 1) / n_parts - token});
    });
}

}  // namespace flux2::cpu
