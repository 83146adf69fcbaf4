#include "compute/cuda/attention.hpp"

#include "compute/cuda/hopper.cuh"
#include "compute/cuda/kernel_image.hpp"
#include "compute/cuda/tensor_core.cuh"
#include "compute/cuda/tensor_map.hpp"
#include "compute/cuda/tiles.cuh"

#include <cfloat>
#include <cmath>

// Two warpgroups multiply, a third one fetches. A warpgroup has 64 queries; while the tensor cores
// add the values of one tile of keys, its threads weigh the scores of the next one.

namespace flux2::cuda {
namespace {

constexpr int kHead = 128;
constexpr int kRows = 128;  // queries of a block
constexpr int kKeys = 128;  // of a tile
constexpr int kStages = 2;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = 3 * kGroup;
constexpr int kConsumerWarps = 2 * kGroup / 32;
constexpr float kLog2E = 1.4426950408889634f;

// A tile [128 tokens][128 values] lies as two halves of 64 values, in rows of 128 bytes whose
// 16-byte pieces are swizzled by the copy engine.
constexpr int kHalf = 64;
constexpr uint32_t kRowBytes = kHalf * sizeof(__nv_bfloat16);
constexpr uint32_t kHalfBytes = 128 * kRowBytes;
constexpr uint32_t kTileBytes = 2 * kHalfBytes;

struct Shared {
    alignas(kSwizzleBytes) unsigned char q[kTileBytes];
    unsigned char k[kStages][kTileBytes];
    unsigned char v[kStages][kTileBytes];
    alignas(8) uint64_t q_full;
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

struct Maps {
    CUtensorMap q, own_k, own_v, kept_k, kept_v;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}

// ---- One warpgroup's queries ----

// Thread t of a warp has rows t / 4 and t / 4 + 8 of the warp's sixteen, and of every eight columns
// the two from 2 * (t % 4) on: values 4 * j and 4 * j + 1 of the upper row, the next two of the
// lower.
struct Rows {
    float scores[64];
    float out[64];
    uint32_t weights[32];
    float highest[2] = {-FLT_MAX, -FLT_MAX};  // finite, also before anything is seen
    float sum[2] = {0, 0};
};

__device__ void score(Rows& rows, uint32_t q, uint32_t k) {
    multiplies_begin();
#pragma unroll
    for (int i = 0; i < kHead / 16; ++i) {
        const uint32_t offset = i / 4 * kHalfBytes + i % 4 * 32;
        multiply_bf16(rows.scores, matrix_at(q + offset), matrix_at(k + offset), i > 0);
    }
    multiplies_end_group();
}

__device__ void add_values(Rows& rows, uint32_t v) {
    multiplies_begin();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
        multiply_add_bf16(rows.out, rows.weights + 4 * i,
                          matrix_at(v + i * 16 * kRowBytes, kHalfBytes));
    }
    multiplies_end_group();
}

__device__ void hide_beyond(Rows& rows, int n_keys) {
    if (n_keys >= kKeys) {
        return;
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const int column = i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
        rows.scores[i] = column < n_keys ? rows.scores[i] : -INFINITY;
    }
}

// Adds the mask of the keys from `first_key` on; rows beyond the last query have none.
__device__ void add_mask(Rows& rows, const AttentionArgs& args, int row, int first_key) {
    const float unscale = sqrtf(static_cast<float>(kHead));  // scores are scaled later
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = min(row + 8 * half, args.n_queries - 1);
        const float* mask = args.mask + int64_t{query} * args.own.n;
#pragma unroll
        for (int i = 2 * half; i < 64; i += 4) {
            const int key = first_key + i / 4 * 8 + 2 * (threadIdx.x % 4);
            rows.scores[i] += key < args.own.n ? mask[key] * unscale : 0;
            rows.scores[i + 1] += key + 1 < args.own.n ? mask[key + 1] * unscale : 0;
        }
    }
}

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Scores become e^(score - highest); returns in `factor` what scales everything before.
__device__ void weigh(Rows& rows, float (&factor)[2]) {
    const float scale = rsqrtf(static_cast<float>(kHead)) * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = rows.highest[half];
#pragma unroll
        for (int i = 2 * half; i < 64; i += 4) {
            highest = fmaxf(highest, fmaxf(rows.scores[i], rows.scores[i + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        factor[half] = exp2_of((rows.highest[half] - highest) * scale);
        rows.highest[half] = highest;
        const float base = highest * scale;
        float sum = rows.sum[half] * factor[half];
#pragma unroll
        for (int i = 2 * half; i < 64; i += 4) {
            rows.scores[i] = exp2_of(rows.scores[i] * scale - base);
            rows.scores[i + 1] = exp2_of(rows.scores[i + 1] * scale - base);
            sum += rows.scores[i] + rows.scores[i + 1];
        }
        rows.sum[half] = sum;
    }
}

__device__ void take_weights(Rows& rows) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        rows.weights[i] = pack(rows.scores[2 * i], rows.scores[2 * i + 1]);
    }
}

__device__ void store(const Rows& rows, const AttentionArgs& args, const QueryTile& tile, int row,
                      int head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = rows.sum[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const int query = row + 8 * half;
        if (query >= tile.end) {
            continue;
        }
        if (args.log_sums != nullptr && threadIdx.x % 4 == 0) {
            args.log_sums[query * args.log_sums_stride + head] =
                rows.highest[half] * rsqrtf(static_cast<float>(kHead)) + logf(sum);
        }
        __nv_bfloat16* to = args.out + query * args.out_stride + head * kHead;
        const float factor = 1 / sum;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            *reinterpret_cast<uint32_t*>(to + 8 * j + 2 * (threadIdx.x % 4)) =
                pack(rows.out[4 * j + 2 * half] * factor, rows.out[4 * j + 2 * half + 1] * factor);
        }
    }
}

// 128 tokens of a head from `token` on; tokens beyond the last one become zeros.
__device__ void fetch(void* to, const CUtensorMap& map, int head, int token, uint64_t& barrier) {
    barrier_expect(shared_address(&barrier), kTileBytes);
    copy_halves(shared_address(to), kHalfBytes, map, head, token, shared_address(&barrier));
}

__device__ void wait(uint64_t& barrier, uint32_t parity) {
    barrier_wait(shared_address(&barrier), parity);
}

// The tiles of keys a block goes through: its own ones, then the kept ones.
struct KeyTiles {
    int first_key, n_own, n_own_tiles, n_kept, n_tiles;

    __device__ KeyTiles(const AttentionArgs& args, const QueryTile& tile)
        : first_key(tile.first_key),
          n_own(args.own.n - tile.first_key),
          n_own_tiles((n_own + kKeys - 1) / kKeys),
          n_kept(tile.first_key == 0 ? args.kept.n : 0),
          n_tiles(n_own_tiles + (n_kept + kKeys - 1) / kKeys) {}

    __device__ bool is_own(int i) const { return i < n_own_tiles; }
    // Of the tile in its tensor.
    __device__ int first(int i) const {
        return is_own(i) ? first_key + i * kKeys : (i - n_own_tiles) * kKeys;
    }
    __device__ int count(int i) const {
        return is_own(i) ? n_own - i * kKeys : n_kept - (i - n_own_tiles) * kKeys;
    }
};

__device__ uint32_t parity(int i) {
    return static_cast<uint32_t>(i / kStages & 1);
}

// The one thread that fetches.
__device__ void produce(Shared& shared, const AttentionArgs& args, const Maps& maps,
                        const QueryTile& tile, const KeyTiles& keys, int head) {
    const int head_kv = head / (args.n_head / args.n_head_kv);
    fetch(shared.q, maps.q, head, tile.first, shared.q_full);
    for (int i = 0; i < keys.n_tiles; ++i) {
        const int stage = i % kStages;
        const CUtensorMap& k = keys.is_own(i) ? maps.own_k : maps.kept_k;
        const CUtensorMap& v = keys.is_own(i) ? maps.own_v : maps.kept_v;
        wait(shared.k_empty[stage], parity(i) ^ 1);
        fetch(shared.k[stage], k, head_kv, keys.first(i), shared.k_full[stage]);
        wait(shared.v_empty[stage], parity(i) ^ 1);
        fetch(shared.v[stage], v, head_kv, keys.first(i), shared.v_full[stage]);
    }
}

__device__ void release(uint64_t& barrier) {
    if (threadIdx.x % 32 == 0) {
        barrier_arrive(shared_address(&barrier));
    }
}

template <bool kMasked>
__device__ void consume(Shared& shared, const AttentionArgs& args, const QueryTile& tile,
                        const KeyTiles& keys, int head) {
    const int group = threadIdx.x / kGroup - 1;
    const int row = tile.first + group * 64 + threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t q = shared_address(shared.q) + group * 64 * kRowBytes;
    Rows rows;
    float factor[2];
    wait(shared.q_full, 0);
    wait(shared.k_full[0], 0);
    score(rows, q, shared_address(shared.k[0]));
    multiplies_wait<0>();
    release(shared.k_empty[0]);
    if constexpr (kMasked) {
        add_mask(rows, args, row, keys.first(0));
    }
    hide_beyond(rows, keys.count(0));
    weigh(rows, factor);
    take_weights(rows);
#pragma unroll
    for (float& value : rows.out) {
        value = 0;
    }
    for (int i = 1; i < keys.n_tiles; ++i) {
        const int stage = i % kStages;
        const int before = (i - 1) % kStages;
        wait(shared.k_full[stage], parity(i));
        score(rows, q, shared_address(shared.k[stage]));
        wait(shared.v_full[before], parity(i - 1));
        add_values(rows, shared_address(shared.v[before]));
        multiplies_wait<1>();
        release(shared.k_empty[stage]);
        if constexpr (kMasked) {
            add_mask(rows, args, row, keys.first(i));
        }
        hide_beyond(rows, keys.count(i));
        weigh(rows, factor);
        multiplies_wait<0>();
        release(shared.v_empty[before]);
        take_weights(rows);
#pragma unroll
        for (int j = 0; j < 64; ++j) {
            rows.out[j] *= factor[j / 2 % 2];
        }
    }
    const int last = keys.n_tiles - 1;
    wait(shared.v_full[last % kStages], parity(last));
    add_values(rows, shared_address(shared.v[last % kStages]));
    multiplies_wait<0>();
    store(rows, args, tile, row, head);
}

#endif

template <bool kMasked>
__global__ void __launch_bounds__(kThreads, 1)
    attend(const __grid_constant__ AttentionArgs args, const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ unsigned char memory[];
    auto& shared = swizzled_memory<Shared>(memory);
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&shared.q_full), 1);
        for (int i = 0; i < kStages; ++i) {
            barrier_init(shared_address(&shared.k_full[i]), 1);
            barrier_init(shared_address(&shared.v_full[i]), 1);
            barrier_init(shared_address(&shared.k_empty[i]), kConsumerWarps);
            barrier_init(shared_address(&shared.v_empty[i]), kConsumerWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int head = blockIdx.y;
    const QueryTile tile = query_tile(args, kRows, blockIdx.x);
    const KeyTiles keys(args, tile);
    if (threadIdx.x / kGroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            produce(shared, args, maps, tile, keys, head);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume<kMasked>(shared, args, tile, keys, head);
    }
#endif
}

// ---- Host ----

// x [n tokens][n_head][128]; fetched 128 tokens and half a head at a time.
bool make_map(CUtensorMap& map, const __nv_bfloat16* x, int64_t stride, int n_head, int n) {
    static const EncodeTensorMap encode = find_encode_tensor_map();
    constexpr cuuint32_t kDims = 3;
    const cuuint64_t sizes[kDims] = {kHead, static_cast<cuuint64_t>(n_head),
                                     static_cast<cuuint64_t>(n)};
    const cuuint64_t strides[kDims - 1] = {kHead * sizeof(__nv_bfloat16),
                                           static_cast<cuuint64_t>(stride) * sizeof(__nv_bfloat16)};
    const cuuint32_t box[kDims] = {kHalf, 1, 128};
    const cuuint32_t steps[kDims] = {1, 1, 1};
    return encode != nullptr &&
           encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kDims, const_cast<__nv_bfloat16*>(x),
                  sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool is_aligned(const void* p, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 8 == 0;
}

bool is_aligned(const KeysValues& kv) {
    return kv.n == 0 || (is_aligned(kv.k, kv.k_stride) && is_aligned(kv.v, kv.v_stride));
}

}  // namespace

bool has_hopper_attention() {
    return image_architecture(attend<false>) != 0;
}

bool hopper_attention_supports(const AttentionArgs& args) {
    const bool has_both = args.mask != nullptr && args.kept.n > 0;
    return args.head_dim == kHead && !has_both && is_aligned(args.q, args.q_stride) &&
           is_aligned(args.own) && is_aligned(args.kept);
}

cudaError_t hopper_attention(const AttentionArgs& args, cudaStream_t stream) {
    Maps maps;
    const KeysValues& kept = args.kept.n > 0 ? args.kept : args.own;
    if (!make_map(maps.q, args.q, args.q_stride, args.n_head, args.n_queries) ||
        !make_map(maps.own_k, args.own.k, args.own.k_stride, args.n_head_kv, args.own.n) ||
        !make_map(maps.own_v, args.own.v, args.own.v_stride, args.n_head_kv, args.own.n) ||
        !make_map(maps.kept_k, kept.k, kept.k_stride, args.n_head_kv, kept.n) ||
        !make_map(maps.kept_v, kept.v, kept.v_stride, args.n_head_kv, kept.n)) {
        return cudaErrorInvalidValue;
    }
    constexpr int kBytes = sizeof(Shared) + kSwizzleBytes;
    const auto kernel = args.mask != nullptr ? attend<true> : attend<false>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) {
        return status;
    }
    const dim3 grid(static_cast<unsigned>(count_tiles(args, kRows)),
                    static_cast<unsigned>(args.n_head));
    kernel<<<grid, kThreads, kBytes, stream>>>(args, maps);
    return cudaGetLastError();
}

}  // namespace flux2::cuda
