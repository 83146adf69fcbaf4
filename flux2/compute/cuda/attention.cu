#include "compute/cuda/attention.hpp"

#include "compute/cuda/kernel_image.hpp"
#include "compute/cuda/tensor_core.cuh"
#include "compute/cuda/tiles.cuh"
#include "compute/cuda/token_tiles.cuh"

#include <cmath>

namespace flux2::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // queries of a block
constexpr int kKeys = 64;           // of a tile
constexpr int kStages = 2;          // tiles in shared memory: one is used, the next one arrives
constexpr float kLog2E = 1.4426950408889634f;

// One warp's sixteen queries: thread t has rows t / 4 and t / 4 + 8, and of every eight columns the
// two from 2 * (t % 4) on.
template <int kHead>
struct Rows {
    uint32_t q[kHead / 16][4];
    float scores[kKeys / 8][4];
    float out[kHead / 8][4] = {};
    float highest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
};

template <int kHead>
__device__ void load_queries(Rows<kHead>& rows, const AttentionArgs& args, const QueryTile& tile,
                             int row, int head) {
    const int column = 2 * (threadIdx.x % 4);
    const auto pair = [&](int r, int c) -> uint32_t {
        const int query = min(row + r, tile.end - 1);
        return *reinterpret_cast<const uint32_t*>(args.q + query * args.q_stride + head * kHead +
                                                  column + c);
    };
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
        rows.q[k][0] = pair(0, 16 * k);
        rows.q[k][1] = pair(8, 16 * k);
        rows.q[k][2] = pair(0, 16 * k + 8);
        rows.q[k][3] = pair(8, 16 * k + 8);
    }
}

// scores = q k^T
template <int kHead>
__device__ void score(Rows<kHead>& rows, uint32_t keys) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (float& value : rows.scores[n]) {
            value = 0;
        }
#pragma unroll
        for (int k = 0; k < kHead / 16; k += 2) {
            uint32_t b[4];
            load_matrices(b, keys + place<kHead>(8 * n + lane % 8, 2 * k + lane / 8));
            multiply_add_bf16(rows.scores[n], rows.q[k], b[0], b[1]);
            multiply_add_bf16(rows.scores[n], rows.q[k + 1], b[2], b[3]);
        }
    }
}

// Scales the scores to powers of two, adds the mask, hides keys beyond the last one.
template <int kHead>
__device__ void adjust(Rows<kHead>& rows, const AttentionArgs& args, const QueryTile& tile, int row,
                       int key, int n_keys) {
    const float factor = rsqrtf(static_cast<float>(kHead)) * kLog2E;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int column = 8 * n + 2 * (threadIdx.x % 4) + i % 2;
            float value = rows.scores[n][i] * factor;
            if (args.mask != nullptr && column < n_keys) {
                const int query = min(row + i / 2 * 8, tile.end - 1);
                value +=
                    args.mask[static_cast<int64_t>(query) * args.own.n + key + column] * kLog2E;
            }
            rows.scores[n][i] = column < n_keys ? value : -INFINITY;
        }
    }
}

__device__ float over_four_threads(float value, bool highest) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
        const float other = __shfl_xor_sync(~0u, value, distance);
        value = highest ? fmaxf(value, other) : value + other;
    }
    return value;
}

// Scores become weights; what was summed up before is scaled to the new highest score.
template <int kHead>
__device__ void weigh(Rows<kHead>& rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = rows.highest[half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
            highest = fmaxf(highest, fmaxf(rows.scores[n][2 * half], rows.scores[n][2 * half + 1]));
        }
        highest = over_four_threads(highest, true);
        const float base = highest == -INFINITY ? 0 : highest;
        const float factor = exp2f(rows.highest[half] - base);
        rows.highest[half] = highest;
        rows.sum[half] *= factor;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                rows.scores[n][i] = exp2f(rows.scores[n][i] - base);
                rows.sum[half] += rows.scores[n][i];
            }
        }
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
            rows.out[n][2 * half] *= factor;
            rows.out[n][2 * half + 1] *= factor;
        }
    }
}

template <int kHead>
__device__ void store(const Rows<kHead>& rows, const AttentionArgs& args, const QueryTile& tile,
                      int row, int head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = over_four_threads(rows.sum[half], false);
        const int query = row + 8 * half;
        if (query >= tile.end) {
            continue;
        }
        if (args.log_sums != nullptr && threadIdx.x % 4 == 0) {
            args.log_sums[query * args.log_sums_stride + head] =
                (rows.highest[half] + log2f(sum)) / kLog2E;
        }
        __nv_bfloat16* to = args.out + query * args.out_stride + head * kHead;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
            *reinterpret_cast<uint32_t*>(to + 8 * n + 2 * (threadIdx.x % 4)) =
                pack(rows.out[n][2 * half] / sum, rows.out[n][2 * half + 1] / sum);
        }
    }
}

// The tiles of keys one block goes through: its own ones, then the kept ones.
struct KeyTiles {
    int first_key, n_own, n_own_tiles, n_tiles;

    __device__ KeyTiles(const AttentionArgs& args, const QueryTile& tile)
        : first_key(tile.first_key),
          n_own(args.own.n - tile.first_key),
          n_own_tiles((n_own + kKeys - 1) / kKeys),
          n_tiles(n_own_tiles + (tile.first_key == 0 ? (args.kept.n + kKeys - 1) / kKeys : 0)) {}
};

template <int kHead>
__global__ void __launch_bounds__(kThreads) attend(const __grid_constant__ AttentionArgs args) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr uint32_t kTileBytes = kKeys * kHead * sizeof(__nv_bfloat16);
    const auto tiles_at = shared_address(shared);
    const int head = blockIdx.y;
    const int head_kv = head / (args.n_head / args.n_head_kv);
    const QueryTile tile = query_tile(args, kRows, blockIdx.x);
    const int row = tile.first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const KeyTiles keys(args, tile);

    const auto begin_load = [&](int i) {
        if (i < keys.n_tiles) {
            const bool own = i < keys.n_own_tiles;
            const KeysValues& from = own ? args.own : args.kept;
            const int first = (own ? keys.first_key + i * kKeys : (i - keys.n_own_tiles) * kKeys);
            const uint32_t to = tiles_at + i % kStages * 2 * kTileBytes;
            load_tile<kHead, kKeys, kThreads>(to, from.k + first * from.k_stride + head_kv * kHead,
                                              from.k_stride, from.n - first);
            load_tile<kHead, kKeys, kThreads>(to + kTileBytes,
                                              from.v + first * from.v_stride + head_kv * kHead,
                                              from.v_stride, from.n - first);
        }
        copies_end_group();
    };

    Rows<kHead> rows;
    begin_load(0);
    load_queries(rows, args, tile, row, head);
    for (int i = 0; i < keys.n_tiles; ++i) {
        begin_load(i + 1);
        copies_wait<1>();
        __syncthreads();
        const uint32_t at = tiles_at + i % kStages * 2 * kTileBytes;
        const bool own = i < keys.n_own_tiles;
        const int key = own ? i * kKeys : (i - keys.n_own_tiles) * kKeys;
        score(rows, at);
        adjust(rows, args, tile, row, keys.first_key + key,
               min(kKeys, (own ? keys.n_own : args.kept.n) - key));
        weigh(rows);
        add_rows<kHead, kKeys>(rows.out, rows.scores, at + kTileBytes);
        __syncthreads();
    }
    store(rows, args, tile, row, head);
}

template <int kHead>
cudaError_t launch(const AttentionArgs& args, cudaStream_t stream) {
    constexpr int kBytes = kStages * 2 * kKeys * kHead * static_cast<int>(sizeof(__nv_bfloat16));
    const cudaError_t status =
        cudaFuncSetAttribute(attend<kHead>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid(static_cast<unsigned>(count_tiles(args, kRows)),
                    static_cast<unsigned>(args.n_head));
    attend<kHead><<<grid, kThreads, kBytes, stream>>>(args);
    return cudaGetLastError();
}

}  // namespace

int attention_architecture() {
    return image_architecture(attend<128>);
}

cudaError_t attention(const AttentionArgs& args, cudaStream_t stream) {
    switch (args.head_dim) {
        case 32:
            return launch<32>(args, stream);
        case 64:
            return launch<64>(args, stream);
        case 128:
            return launch<128>(args, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace flux2::cuda
