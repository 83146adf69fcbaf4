#include "compute/cuda/attention_gradient.hpp"

#include "compute/cuda/gradient_rows.cuh"
#include "compute/cuda/token_tiles.cuh"

#include <cmath>

// With the weights P = e^(score - log sum), D = sum of d * out over a head, and the derivative by a
// score dS = P * (d v^T - D): dq = dS k, dk = dS^T q, dv = P^T d, the first two times the factor of
// the scores. A block has 128 tokens of its own, queries or keys, and goes through all others.

namespace flux2::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kOwn = 16 * kWarps;  // tokens of a block
constexpr int kOthers = 32;        // tokens of a tile of the others
constexpr int kStages = 2;
static_assert(kGradientRows % kOwn == 0 && kGradientRows % kOthers == 0);

// Sixteen rows of the block's own tile times those of another, over the values of a head.
template <int kHead>
__device__ void multiply_heads(Sums<kOthers>& sums, uint32_t own, uint32_t others) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (auto& four : sums) {
#pragma unroll
        for (float& value : four) {
            value = 0;
        }
    }
#pragma unroll
    for (int k = 0; k < kHead / 16; k += 2) {
        uint32_t a[2][4];
        load_matrices(a[0], own + place<kHead>(row, 2 * k + lane / 16));
        load_matrices(a[1], own + place<kHead>(row, 2 * k + 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < kOthers / 8; ++n) {
            uint32_t b[4];
            load_matrices(b, others + place<kHead>(8 * n + lane % 8, 2 * k + lane / 8));
            multiply_add_bf16(sums[n], a[0], b[0], b[1]);
            multiply_add_bf16(sums[n], a[1], b[2], b[3]);
        }
    }
}

template <int kHead>
__device__ void store(const Sums<kHead>& sums, __nv_bfloat16* to, int64_t stride, int n_rows,
                      float factor) {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= n_rows) {
            continue;
        }
        __nv_bfloat16* out = to + (row + 8 * half) * stride + 2 * (threadIdx.x % 4);
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
            *reinterpret_cast<uint32_t*>(out + 8 * n) =
                pack(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
        }
    }
}

template <int kHead>
struct Shared {
    static constexpr uint32_t kOwnBytes = kOwn * kHead * sizeof(__nv_bfloat16);
    static constexpr uint32_t kOtherBytes = kOthers * kHead * sizeof(__nv_bfloat16);

    struct Stage {
        alignas(128) unsigned char scored[kOtherBytes];
        unsigned char weighed[kOtherBytes];
        float2 rows[kOthers];  // of queries
    };
    alignas(128) unsigned char scored[kOwnBytes];  // what scores are made of: queries or keys
    unsigned char weighed[kOwnBytes];              // gradients or values
    Stage stage[kStages];
};

// Of queries, or of keys and values.
template <int kHead, bool kOfKeys>
__global__ void __launch_bounds__(kThreads)
    gradient(const __grid_constant__ AttentionGradientArgs args) {
    extern __shared__ __align__(128) unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<kHead>*>(memory);
    const int head = blockIdx.y;
    const int first = blockIdx.x * kOwn;
    const float2* rows = args.rows + int64_t{head} * padded_rows(args.n);
    const auto of_head = [&](const TokenHeads& x, int token) {
        return x.data + token * x.stride + head * kHead;
    };
    const TokenHeads& scored = kOfKeys ? args.q : args.k;  // of the others
    const TokenHeads& weighed = kOfKeys ? args.d : args.v;
    const int n_tiles = (args.n + kOthers - 1) / kOthers;
    const auto begin_load = [&](int i) {
        if (i < n_tiles) {
            const int token = i * kOthers;
            auto& stage = shared.stage[i % kStages];
            load_tile<kHead, kOthers, kThreads>(shared_address(stage.scored),
                                                of_head(scored, token), scored.stride,
                                                args.n - token);
            load_tile<kHead, kOthers, kThreads>(shared_address(stage.weighed),
                                                of_head(weighed, token), weighed.stride,
                                                args.n - token);
            if (kOfKeys && threadIdx.x < kOthers / 2) {
                copy_16(shared_address(stage.rows + 2 * threadIdx.x),
                        rows + token + 2 * threadIdx.x, true);
            }
        }
        copies_end_group();
    };
    const TokenHeads& own_scored = kOfKeys ? args.k : args.q;
    const TokenHeads& own_weighed = kOfKeys ? args.v : args.d;
    load_tile<kHead, kOwn, kThreads>(shared_address(shared.scored), of_head(own_scored, first),
                                     own_scored.stride, args.n - first);
    load_tile<kHead, kOwn, kThreads>(shared_address(shared.weighed), of_head(own_weighed, first),
                                     own_weighed.stride, args.n - first);
    begin_load(0);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const float2 own_rows[2] = {rows[first + row], rows[first + row + 8]};

    const float factor = rsqrtf(static_cast<float>(kHead));
    Sums<kHead> scored_sums = {};
    Sums<kHead> weighed_sums = {};
    for (int i = 0; i < n_tiles; ++i) {
        begin_load(i + 1);
        copies_wait<1>();
        __syncthreads();
        const auto& stage = shared.stage[i % kStages];
        Sums<kOthers> weights, d_scores;
        multiply_heads<kHead>(weights, shared_address(shared.scored), shared_address(stage.scored));
        multiply_heads<kHead>(d_scores, shared_address(shared.weighed),
                              shared_address(stage.weighed));
#pragma unroll
        for (int n = 0; n < kOthers / 8; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int column = 8 * n + 2 * (threadIdx.x % 4) + j % 2;
                const float2 query = kOfKeys ? stage.rows[column] : own_rows[j / 2];
                const float weight = exp2f(weights[n][j] * (factor * kLog2E) - query.x);
                // A tile beyond the last key has zeros, whose score is no real one.
                const bool exists = kOfKeys || i * kOthers + column < args.n;
                weights[n][j] = exists ? weight : 0;
                d_scores[n][j] = weights[n][j] * (d_scores[n][j] - query.y);
            }
        }
        add_rows<kHead, kOthers>(scored_sums, d_scores, shared_address(stage.scored));
        if constexpr (kOfKeys) {
            add_rows<kHead, kOthers>(weighed_sums, weights, shared_address(stage.weighed));
        }
        __syncthreads();
    }
    const int64_t to = int64_t{first} * args.result_stride + head * kHead;
    store<kHead>(scored_sums, (kOfKeys ? args.dk : args.dq) + to, args.result_stride,
                 args.n - first, factor);
    if constexpr (kOfKeys) {
        store<kHead>(weighed_sums, args.dv + to, args.result_stride, args.n - first, 1.0f);
    }
}

template <int kHead, bool kOfKeys>
cudaError_t launch(const AttentionGradientArgs& args, cudaStream_t stream) {
    constexpr int kBytes = sizeof(Shared<kHead>);
    const cudaError_t status = prepare_gradient(gradient<kHead, kOfKeys>, kBytes, args, stream);
    if (status != cudaSuccess) {
        return status;
    }
    gradient<kHead, kOfKeys><<<gradient_grid(args, kOwn), kThreads, kBytes, stream>>>(args);
    return cudaGetLastError();
}

template <bool kOfKeys>
cudaError_t launch_for_head(const AttentionGradientArgs& args, cudaStream_t stream) {
    switch (args.head_dim) {
        case 32:
            return launch<32, kOfKeys>(args, stream);
        case 64:
            return launch<64, kOfKeys>(args, stream);
        case 128:
            return launch<128, kOfKeys>(args, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

}  // namespace

cudaError_t query_gradient(const AttentionGradientArgs& args, cudaStream_t stream) {
    return launch_for_head<false>(args, stream);
}

cudaError_t key_gradient(const AttentionGradientArgs& args, cudaStream_t stream) {
    return launch_for_head<true>(args, stream);
}

}  // namespace flux2::cuda
