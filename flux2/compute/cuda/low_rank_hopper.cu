#include "compute/cuda/low_rank.hpp"
#include "compute/cuda/tensor_core.cuh"

#include <cooperative_groups.h>

// Built for anything but sm_90a the kernel is empty, and much of this file unused.
#pragma nv_diag_suppress 177

namespace flux2::cuda {
namespace hopper {
namespace {

// The time goes into reading x, so there must be many blocks with many copies under way. A cluster
// of blocks shares the width of a tile of tokens; each adds up its slices of the width, then one
// reads the sums of the others, in their order.
constexpr int kTokens = 64;  // in a tile
constexpr int kSlice = 64;   // values of a row that are copied at a time
constexpr int kRowBytes = kSlice * 2;
constexpr int kPieces = kRowBytes / 16;
constexpr int kStages = 4;  // slices in shared memory
constexpr int kThreads = 256;
constexpr int kGroups = kTokens / 16;  // of warps, which share a slice
constexpr int kSteps = kSlice / 16 / (kThreads / 32 / kGroups);

// With room for so many results.
template <int rank_>
struct Tile {
    static constexpr int kRank = rank_;
    static constexpr int kRows = kTokens + kRank;
    static constexpr int kStageBytes = kRows * kRowBytes;
    static constexpr int kBytes = kStages * kStageBytes;
    static_assert(kTokens * kRank * 4 <= kBytes, "sums take the place of the slices");
};

// Pieces of 16 bytes lie so that eight rows of one column touch all banks.
__device__ uint32_t place_of(int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + (piece ^ row % 8) * 16);
}

// Tokens first, then rows of `down`; what lies outside becomes zero.
template <typename T>
__device__ void copy_slice(const DownArgs& a, int first_token, int slice, uint32_t to) {
    constexpr int kRowsAtOnce = kThreads / kPieces;
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    const int column = slice * kSlice + piece * 8;
#pragma unroll
    for (int i = 0; i < (T::kRows + kRowsAtOnce - 1) / kRowsAtOnce; ++i) {
        const int row = static_cast<int>(threadIdx.x) / kPieces + i * kRowsAtOnce;
        const bool is_token = row < kTokens;
        const int from = is_token ? first_token + row : row - kTokens;
        const bool inside = column < a.width && from < (is_token ? a.n : a.rank);
        const __nv_bfloat16* begin =
            is_token ? a.x + from * a.x_stride : a.down + from * a.down_stride;
        if (row < T::kRows) {
            copy_16(to + place_of(row, piece), begin + column, inside);
        }
    }
}

template <typename T>
struct Sums {
    float v[T::kRank / 8][4] = {};
};

// This warp's 16 tokens and its part of the slice.
template <typename T>
__device__ void multiply_slice(uint32_t stage, Sums<T>& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int token = warp % kGroups * 16 + lane % 16;
    const int result = kTokens + lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int piece = (warp / kGroups * kSteps + step) * 2;
        uint32_t x[4];
        load_matrices(x, stage + place_of(token, piece + lane / 16));
#pragma unroll
        for (int i = 0; i < T::kRank / 16; ++i) {
            uint32_t down[4];
            load_matrices(down, stage + place_of(result + i * 16, piece + lane / 8 % 2));
            multiply_add_bf16(sums.v[2 * i], x, down[0], down[1]);
            multiply_add_bf16(sums.v[2 * i + 1], x, down[2], down[3]);
        }
    }
}

// To shared memory [kTokens][kRank]; the groups that have the same tokens one after the other.
template <typename T>
__device__ void join_warps(const Sums<T>& sums, float* joined) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float* to = joined + (warp % kGroups * 16 + lane / 4) * T::kRank + lane % 4 * 2;
    for (int turn = 0; turn < kThreads / 32 / kGroups; ++turn) {
        __syncthreads();
        if (warp / kGroups != turn) {
            continue;
        }
#pragma unroll
        for (int i = 0; i < T::kRank / 8; ++i) {
#pragma unroll
            for (int below = 0; below < 2; ++below) {
                float2& pair = *reinterpret_cast<float2*>(to + below * 8 * T::kRank + i * 8);
                const float2 before = turn == 0 ? float2{0, 0} : pair;
                pair = {before.x + sums.v[i][2 * below], before.y + sums.v[i][2 * below + 1]};
            }
        }
    }
}

// Each block of the cluster takes some tokens.
template <typename T>
__device__ void join_blocks(const DownArgs& a, int first_token, float* joined) {
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    const int n_blocks = static_cast<int>(cluster.num_blocks());
    const int n_tokens = kTokens / n_blocks;
    const int begin = static_cast<int>(cluster.block_rank()) * n_tokens;
    constexpr int kPairs = T::kRank / 2;
    for (int i = static_cast<int>(threadIdx.x); i < n_tokens * kPairs; i += kThreads) {
        const int row = begin + i / kPairs;
        const int column = i % kPairs * 2;
        float2 sum = {0, 0};
        for (int block = 0; block < n_blocks; ++block) {
            const float* part = cluster.map_shared_rank(joined, static_cast<unsigned>(block));
            const float2 v = *reinterpret_cast<const float2*>(part + row * T::kRank + column);
            sum = {sum.x + v.x, sum.y + v.y};
        }
        if (first_token + row < a.n && column < a.rank) {
            *reinterpret_cast<__nv_bfloat162*>(a.y + (first_token + row) * a.y_stride + column) =
                __floats2bfloat162_rn(sum.x, sum.y);
        }
    }
    cluster.sync();  // nobody ends while others read its sums
}

template <typename T>
__global__ void __launch_bounds__(kThreads) down_kernel(const __grid_constant__ DownArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t shared = shared_address(memory);
    const int first_token = static_cast<int>(blockIdx.y) * kTokens;
    const int n_slices = (a.width + kSlice - 1) / kSlice;
    const int first = static_cast<int>(blockIdx.x) * n_slices / static_cast<int>(gridDim.x);
    const int end = (static_cast<int>(blockIdx.x) + 1) * n_slices / static_cast<int>(gridDim.x);
    const auto copy = [&](int slice) {
        if (slice < end) {
            copy_slice<T>(a, first_token, slice,
                          shared + (slice - first) % kStages * T::kStageBytes);
        }
        copies_end_group();
    };
    for (int i = 0; i < kStages - 1; ++i) {
        copy(first + i);
    }
    Sums<T> sums;
    for (int slice = first; slice < end; ++slice) {
        copies_wait<kStages - 2>();
        __syncthreads();
        copy(slice + kStages - 1);
        multiply_slice<T>(shared + (slice - first) % kStages * T::kStageBytes, sums);
    }
    copies_wait<0>();
    float* joined = reinterpret_cast<float*>(memory);
    join_warps<T>(sums, joined);
    join_blocks<T>(a, first_token, joined);
#else
    __trap();
#endif
}

template <typename T>
cudaError_t launch(const DownArgs& args, cudaStream_t stream) {
    constexpr unsigned kManyTiles = 40;  // fewer leave multiprocessors idle with four blocks each
    const cudaError_t status = cudaFuncSetAttribute(
        down_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
    if (status != cudaSuccess) {
        return status;
    }
    const unsigned n_tiles = static_cast<unsigned>((args.n + kTokens - 1) / kTokens);
    const unsigned n_blocks = n_tiles < kManyTiles ? 8 : 4;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {n_blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_blocks, n_tiles);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = T::kBytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, down_kernel<T>, args);
}

bool is_aligned(const void* p, uintptr_t to) {
    return reinterpret_cast<uintptr_t>(p) % to == 0;
}

}  // namespace
}  // namespace hopper

bool hopper_down_takes(const DownArgs& a) {
    return a.n > 0 && a.n <= 1 << 20 && a.width > 0 && a.width % 8 == 0 && a.x_stride % 8 == 0 &&
           a.down_stride % 8 == 0 && a.y_stride % 8 == 0 && a.rank > 0 && a.rank % 2 == 0 &&
           a.rank <= 128 && hopper::is_aligned(a.x, 16) && hopper::is_aligned(a.down, 16) &&
           hopper::is_aligned(a.y, 4);
}

cudaError_t hopper_down(const DownArgs& args, cudaStream_t stream) {
    if (!hopper_down_takes(args)) {
        return cudaErrorInvalidValue;
    }
    if (args.rank <= 16) {
        return hopper::launch<hopper::Tile<16>>(args, stream);
    }
    if (args.rank <= 32) {
        return hopper::launch<hopper::Tile<32>>(args, stream);
    }
    return args.rank <= 64 ? hopper::launch<hopper::Tile<64>>(args, stream)
                           : hopper::launch<hopper::Tile<128>>(args, stream);
}

}  // namespace flux2::cuda
