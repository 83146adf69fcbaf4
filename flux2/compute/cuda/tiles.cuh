// How attention's queries are distributed over thread blocks.
#pragma once

#include "compute/cuda/attention.hpp"

namespace flux2::cuda {

// Queries [first, end) of one block, and the first of their own keys.
struct QueryTile {
    int first, end, first_key;
};

// Tiles never straddle n_main: on either side of it queries see other keys.
__host__ __device__ inline int count_tiles(const AttentionArgs& args, int rows) {
    return (args.n_main + rows - 1) / rows + (args.n_queries - args.n_main + rows - 1) / rows;
}

__device__ inline QueryTile query_tile(const AttentionArgs& args, int rows, int i) {
    const int n_main_tiles = (args.n_main + rows - 1) / rows;
    if (i < n_main_tiles) {
        return {i * rows, min(args.n_main, (i + 1) * rows), 0};
    }
    const int first = args.n_main + (i - n_main_tiles) * rows;
    return {first, min(args.n_queries, first + rows), args.n_main};
}

}  // namespace flux2::cuda
