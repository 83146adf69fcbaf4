#include "compute/cuda/attention_gradient.hpp"
#include "compute/cuda/gradient_rows.cuh"
#include "compute/cuda/hopper.cuh"
#include "compute/cuda/tensor_core.cuh"
#include "compute/cuda/tensor_map.hpp"

#include <cmath>

// As in attention_gradient.cu: a block has 128 tokens of its own, queries or keys, and goes through
// all others. Two warpgroups with 64 of them each multiply, a third one fetches the others.

namespace flux2::cuda {
namespace {

constexpr int kHead = 128;
constexpr int kGroups = 2;
constexpr int kTokens = 64;              // of a tile
constexpr int kOwn = kGroups * kTokens;  // tokens of a block
constexpr int kStages = 4;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = (1 + kGroups) * kGroup;
constexpr int kConsumerWarps = kGroups * kGroup / 32;
static_assert(kGradientRows % kOwn == 0);

// A tile [64 tokens][128 values] lies as two halves of 64 values, in rows of 128 bytes whose
// 16-byte pieces are swizzled by the copy engine.
constexpr int kHalf = 64;
constexpr uint32_t kRowBytes = kHalf * sizeof(__nv_bfloat16);
constexpr uint32_t kHalfBytes = kTokens * kRowBytes;
constexpr uint32_t kTileBytes = 2 * kHalfBytes;
constexpr int kRowsBytes = kTokens * static_cast<int>(sizeof(float2));

// What scores are made of, queries or keys, and what is weighed, gradients or values.
struct Tiles {
    alignas(kSwizzleBytes) unsigned char scored[kTileBytes];
    unsigned char weighed[kTileBytes];
};

struct Shared {
    Tiles own[kGroups];
    Tiles others[kStages];
    alignas(16) float2 rows[kStages][kTokens];  // of queries, where the others are queries
    uint64_t own_full;
    uint64_t full[kStages], empty[kStages];
};

struct Maps {
    CUtensorMap own_scored, own_weighed, scored, weighed;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sums [64 own tokens][64 others] = own others^T
__device__ void multiply_heads(float (&sums)[32], uint32_t own, uint32_t others) {
    multiplies_begin();
#pragma unroll
    for (int i = 0; i < kHead / 16; ++i) {
        const uint32_t offset = i / 4 * kHalfBytes + i % 4 * 32;
        multiply_bf16(sums, matrix_at(own + offset), matrix_at(others + offset), i > 0);
    }
    multiplies_end_group();
}

// sums [64 own tokens][128 values] += factors others
__device__ void add_rows(float (&sums)[64], const uint32_t (&factors)[16], uint32_t others) {
    multiplies_begin();
#pragma unroll
    for (int i = 0; i < kTokens / 16; ++i) {
        multiply_add_bf16(sums, factors + 4 * i,
                          matrix_at(others + i * 16 * kRowBytes, kHalfBytes));
    }
    multiplies_end_group();
}

// Thread t of a warp has rows t / 4 and t / 4 + 8 of the warp's sixteen, and of every eight columns
// the two from 2 * (t % 4) on: values 4 * j and 4 * j + 1 of the upper row, the next two of the
// lower.
__device__ int column_of(int i) {
    return i / 4 * 8 + 2 * (threadIdx.x % 4) + i % 2;
}

__device__ void pack_all(uint32_t (&to)[16], const float (&from)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        to[i] = pack(from[2 * i], from[2 * i + 1]);
    }
}

__device__ void store(const float (&sums)[64], __nv_bfloat16* to, int64_t stride, int row, int n,
                      float factor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= n) {
            continue;
        }
        __nv_bfloat16* out = to + (row + 8 * half) * stride + 2 * (threadIdx.x % 4);
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            *reinterpret_cast<uint32_t*>(out + 8 * j) =
                pack(sums[4 * j + 2 * half] * factor, sums[4 * j + 2 * half + 1] * factor);
        }
    }
}

// 64 tokens of a head from `token` on; tokens beyond the last one become zeros.
__device__ void fetch(void* to, const CUtensorMap& map, int head, int token, uint64_t& barrier) {
    copy_halves(shared_address(to), kHalfBytes, map, head, token, shared_address(&barrier));
}

__device__ void wait(uint64_t& barrier, uint32_t parity) {
    barrier_wait(shared_address(&barrier), parity);
}

__device__ uint32_t parity(int i) {
    return static_cast<uint32_t>(i / kStages & 1);
}

__device__ void release(uint64_t& barrier) {
    if (threadIdx.x % 32 == 0) {
        barrier_arrive(shared_address(&barrier));
    }
}

// The one thread that fetches. `rows` of the head's queries, where the others are queries.
template <bool kOfKeys>
__device__ void produce(Shared& shared, const Maps& maps, const float2* rows, int head, int first,
                        int n_tiles) {
    barrier_expect(shared_address(&shared.own_full), kGroups * 2 * kTileBytes);
    for (int i = 0; i < kGroups; ++i) {
        fetch(shared.own[i].scored, maps.own_scored, head, first + i * kTokens, shared.own_full);
        fetch(shared.own[i].weighed, maps.own_weighed, head, first + i * kTokens, shared.own_full);
    }
    for (int i = 0; i < n_tiles; ++i) {
        const int stage = i % kStages;
        uint64_t& full = shared.full[stage];
        wait(shared.empty[stage], parity(i) ^ 1);
        barrier_expect(shared_address(&full), 2 * kTileBytes + (kOfKeys ? kRowsBytes : 0));
        fetch(shared.others[stage].scored, maps.scored, head, i * kTokens, full);
        fetch(shared.others[stage].weighed, maps.weighed, head, i * kTokens, full);
        if constexpr (kOfKeys) {
            copy_bytes(shared_address(shared.rows[stage]), rows + i * kTokens, kRowsBytes,
                       shared_address(&full));
        }
    }
}

constexpr float kFactor = 0.08838834764831845f;  // of scores: 1 / sqrt(128)

// The derivatives by the scores of a tile, from the scores and the gradients times values, once
// their multiplies are done; kPending were begun after these.
template <int kPending>
__device__ void weigh_keys(float (&weights)[32], float (&d_scores)[32], const float2 (&own)[2],
                           int n_keys) {
    multiplies_wait<kPending + 1>();
#pragma unroll
    for (int j = 0; j < 32; ++j) {
        weights[j] = exp2_of(weights[j] * (kFactor * kLog2E) - own[j / 2 % 2].x);
    }
    if (n_keys < kTokens) {  // zeros, whose scores are no real ones
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            weights[j] = column_of(j) < n_keys ? weights[j] : 0;
        }
    }
    multiplies_wait<kPending>();
#pragma unroll
    for (int j = 0; j < 32; ++j) {
        d_scores[j] = weights[j] * (d_scores[j] - own[j / 2 % 2].y);
    }
}

__device__ void consume_keys(Shared& shared, const float2* rows, const AttentionGradientArgs& args,
                             int head, int first, int n_tiles) {
    const int group = threadIdx.x / kGroup - 1;
    const int row = first + group * kTokens + threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t q = shared_address(shared.own[group].scored);
    const uint32_t d = shared_address(shared.own[group].weighed);
    const float2 own[2] = {rows[row], rows[row + 8]};
    float weights[32], d_scores[32], sums[64];
    uint32_t packed[16];
#pragma unroll
    for (float& value : sums) {
        value = 0;
    }
    wait(shared.own_full, 0);
    wait(shared.full[0], 0);
    multiply_heads(weights, q, shared_address(shared.others[0].scored));
    multiply_heads(d_scores, d, shared_address(shared.others[0].weighed));
    weigh_keys<0>(weights, d_scores, own, args.n);
    pack_all(packed, d_scores);
    for (int i = 1; i < n_tiles; ++i) {
        const Tiles& tiles = shared.others[i % kStages];
        const int before = (i - 1) % kStages;
        wait(shared.full[i % kStages], parity(i));
        multiply_heads(weights, q, shared_address(tiles.scored));
        multiply_heads(d_scores, d, shared_address(tiles.weighed));
        add_rows(sums, packed, shared_address(shared.others[before].scored));
        weigh_keys<1>(weights, d_scores, own, args.n - i * kTokens);
        multiplies_wait<0>();
        release(shared.empty[before]);
        pack_all(packed, d_scores);
    }
    add_rows(sums, packed, shared_address(shared.others[(n_tiles - 1) % kStages].scored));
    multiplies_wait<0>();
    store(sums, args.dq + head * kHead, args.result_stride, row, args.n, kFactor);
}

__device__ void consume_queries(Shared& shared, const AttentionGradientArgs& args, int head,
                                int first, int n_tiles) {
    const int group = threadIdx.x / kGroup - 1;
    const int row = first + group * kTokens + threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t k = shared_address(shared.own[group].scored);
    const uint32_t v = shared_address(shared.own[group].weighed);
    float weights[32], d_scores[32], dk[64], dv[64];
    uint32_t packed[16], packed_weights[16];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        dk[i] = dv[i] = 0;
    }
    wait(shared.own_full, 0);
    for (int i = 0; i < n_tiles; ++i) {
        const int stage = i % kStages;
        const uint32_t q = shared_address(shared.others[stage].scored);
        const uint32_t d = shared_address(shared.others[stage].weighed);
        const float2* rows = shared.rows[stage];
        wait(shared.full[stage], parity(i));
        multiply_heads(weights, k, q);
        multiply_heads(d_scores, v, d);
        multiplies_wait<1>();
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            weights[j] = exp2_of(weights[j] * (kFactor * kLog2E) - rows[column_of(j)].x);
        }
        pack_all(packed_weights, weights);
        multiplies_wait<0>();
        add_rows(dv, packed_weights, d);
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            d_scores[j] = weights[j] * (d_scores[j] - rows[column_of(j)].y);
        }
        pack_all(packed, d_scores);
        add_rows(dk, packed, q);
        multiplies_wait<0>();
        release(shared.empty[stage]);
    }
    store(dk, args.dk + head * kHead, args.result_stride, row, args.n, kFactor);
    store(dv, args.dv + head * kHead, args.result_stride, row, args.n, 1.0f);
}

#endif

// Of queries, or of keys and values.
template <bool kOfKeys>
__global__ void __launch_bounds__(kThreads, 1)
    gradient(const __grid_constant__ AttentionGradientArgs args,
             const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ unsigned char memory[];
    auto& shared = swizzled_memory<Shared>(memory);
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&shared.own_full), 1);
        for (int i = 0; i < kStages; ++i) {
            barrier_init(shared_address(&shared.full[i]), 1);
            barrier_init(shared_address(&shared.empty[i]), kConsumerWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int head = blockIdx.y;
    const int first = blockIdx.x * kOwn;
    const int n_tiles = (args.n + kTokens - 1) / kTokens;
    const float2* rows = args.rows + int64_t{head} * padded_rows(args.n);
    if (threadIdx.x / kGroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            produce<kOfKeys>(shared, maps, rows, head, first, n_tiles);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        if constexpr (kOfKeys) {
            consume_queries(shared, args, head, first, n_tiles);
        } else {
            consume_keys(shared, rows, args, head, first, n_tiles);
        }
    }
#endif
}

// ---- Host ----

// x [n tokens][n_head][128]; fetched 64 tokens and half a head at a time.
bool make_map(CUtensorMap& map, const TokenHeads& x, const AttentionGradientArgs& args) {
    static const EncodeTensorMap encode = find_encode_tensor_map();
    constexpr cuuint32_t kDims = 3;
    const cuuint64_t sizes[kDims] = {kHead, static_cast<cuuint64_t>(args.n_head),
                                     static_cast<cuuint64_t>(args.n)};
    const cuuint64_t strides[kDims - 1] = {
        kHead * sizeof(__nv_bfloat16), static_cast<cuuint64_t>(x.stride) * sizeof(__nv_bfloat16)};
    const cuuint32_t box[kDims] = {kHalf, 1, kTokens};
    const cuuint32_t steps[kDims] = {1, 1, 1};
    return encode != nullptr &&
           encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kDims, const_cast<__nv_bfloat16*>(x.data),
                  sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool is_aligned(const TokenHeads& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
}

template <bool kOfKeys>
cudaError_t launch(const AttentionGradientArgs& args, cudaStream_t stream) {
    Maps maps;
    if (!make_map(maps.own_scored, kOfKeys ? args.k : args.q, args) ||
        !make_map(maps.own_weighed, kOfKeys ? args.v : args.d, args) ||
        !make_map(maps.scored, kOfKeys ? args.q : args.k, args) ||
        !make_map(maps.weighed, kOfKeys ? args.d : args.v, args)) {
        return cudaErrorInvalidValue;
    }
    constexpr int kBytes = sizeof(Shared) + kSwizzleBytes;
    const cudaError_t status = prepare_gradient(gradient<kOfKeys>, kBytes, args, stream);
    if (status != cudaSuccess) {
        return status;
    }
    gradient<kOfKeys><<<gradient_grid(args, kOwn), kThreads, kBytes, stream>>>(args, maps);
    return cudaGetLastError();
}

}  // namespace

bool hopper_gradient_supports(const AttentionGradientArgs& args) {
    return args.head_dim == kHead && is_aligned(args.q) && is_aligned(args.k) &&
           is_aligned(args.v) && is_aligned(args.d);
}

cudaError_t hopper_query_gradient(const AttentionGradientArgs& args, cudaStream_t stream) {
    return launch<false>(args, stream);
}

cudaError_t hopper_key_gradient(const AttentionGradientArgs& args, cudaStream_t stream) {
    return launch<true>(args, stream);
}

}  // namespace flux2::cuda
