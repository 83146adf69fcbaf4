#include "compute/cuda/gradient_ops.hpp"

#include "compute/cuda/row_values.cuh"

namespace flux2::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = kRowThreads;

unsigned blocks_for(int64_t n_threads) {
    return static_cast<unsigned>((n_threads + kThreads - 1) / kThreads);
}

// ---- Value by value: four of a row a thread ----

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __grid_constant__ ScaleRowsArgs args) {
    const auto [token, column] = row_place();
    if (column < args.width) {
        store_four<Bf16>(args.y, token * args.y_stride + column,
                         load_four<float>(args.x, token * args.x_stride + column) *
                             load_four<float>(args.scale, column));
    }
}

__global__ void __launch_bounds__(kThreads)
    swiglu_gradient_kernel(const __grid_constant__ SwigluGradientArgs args) {
    const auto [token, column] = row_place();
    if (column >= args.width) {
        return;
    }
    const float4 gate = load_four<Bf16>(args.gate.data, token * args.gate.stride + column);
    const float4 up = load_four<Bf16>(args.up.data, token * args.up.stride + column);
    const float4 d = load_four<Bf16>(args.d.data, token * args.d.stride + column);
    const float4 sigmoid = for_each(gate, [](float v) { return 1 / (1 + __expf(-v)); });
    const float4 rest = for_each(sigmoid, [](float v) { return 1 - v; });
    const float4 slope = sigmoid * for_each(gate * rest, [](float v) { return 1 + v; });
    const int64_t to = token * args.y_stride + column;
    store_four<Bf16>(args.y, to, d * up * slope);
    store_four<Bf16>(args.y, to + args.width, d * gate * sigmoid);
}

// ---- Norms ----

template <typename D>
__global__ void __launch_bounds__(kNormThreads)
    modulate_gradient_kernel(const __grid_constant__ ModulateGradientArgs args) {
    const int64_t token = blockIdx.x;
    const int n_fours = args.width / 4;
    float4 x[kMaxFours], g[kMaxFours];
    float sum = 0;
    float sum_g = 0;
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        const int four = threadIdx.x + i * kNormThreads;
        x[i] = g[i] = {0, 0, 0, 0};
        if (four < n_fours) {
            x[i] = load_four<float>(args.x, token * args.x_stride + 4 * four);
            g[i] = load_four<D>(args.d.data, token * args.d.stride + 4 * four) *
                   for_each(load_four<float>(args.scale, 4 * four), [](float v) { return 1 + v; });
            sum += total(x[i]);
            sum_g += total(g[i]);
        }
    }
    const float mean = sum_of_block(sum) / args.width;
    const float mean_g = sum_of_block(sum_g) / args.width;
    float squares = 0;
    float products = 0;
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        if (threadIdx.x + i * kNormThreads < n_fours) {
            x[i] = for_each(x[i], [&](float v) { return v - mean; });
            squares += total(x[i] * x[i]);
            products += total(x[i] * g[i]);
        }
    }
    const float factor = rsqrtf(sum_of_block(squares) / args.width + args.eps);
    const float mean_gx = sum_of_block(products) * factor / args.width;
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        const int four = threadIdx.x + i * kNormThreads;
        if (four >= n_fours) {
            break;
        }
        const float4 along = for_each(x[i], [&](float v) { return -v * factor * mean_gx; });
        float4 y = for_each(g[i] + along, [&](float v) { return (v - mean_g) * factor; });
        if (args.before != nullptr) {
            y = y + load_four<float>(args.before, token * args.before_stride + 4 * four);
        }
        store_four<float>(args.y, token * args.width + 4 * four, y);
    }
}

__device__ float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(~0u, value, distance);
    }
    return value;
}

// A warp a head of a token, four values a thread: queries, then keys, then values.
__global__ void __launch_bounds__(kThreads)
    heads_gradient_kernel(const __grid_constant__ HeadsGradientArgs args) {
    const int64_t token = blockIdx.x;
    const int head = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) / 32;
    if (head >= 3 * args.n_head) {
        return;
    }
    const int column = 4 * (threadIdx.x % 32);
    const bool has_values = column < args.head_dim;
    const int first = head * args.head_dim;
    const int width = args.n_head * args.head_dim;
    const bool is_query = head < args.n_head;
    float4 d = {0, 0, 0, 0};
    if (has_values) {
        d = is_query
                ? load_four<Bf16>(args.dq.data, token * args.dq.stride + first + column)
                : load_four<Bf16>(args.dkv.data, token * args.dkv.stride + first - width + column);
    }
    if (head < 2 * args.n_head) {
        float4 x = {0, 0, 0, 0};
        float4 norm = {0, 0, 0, 0};
        if (has_values) {
            x = load_four<Bf16>(args.projection.data,
                                token * args.projection.stride + first + column);
            const float4 turn = load_four<float>(args.table, token * args.head_dim + column);
            norm = load_four<float>(is_query ? args.q_norm : args.k_norm, column);
            d = {d.x * turn.x + d.y * turn.y, d.y * turn.x - d.x * turn.y,
                 d.z * turn.z + d.w * turn.w, d.w * turn.z - d.z * turn.w};
        }
        d = d * norm;
        const float factor = rsqrtf(sum_of_warp(total(x * x)) / args.head_dim + args.eps);
        const float mean = sum_of_warp(total(d * x)) * factor / args.head_dim;
        const float4 along = for_each(x, [&](float v) { return -v * factor * mean; });
        d = for_each(d + along, [&](float v) { return v * factor; });
    }
    if (has_values) {
        store_four<Bf16>(args.y, token * args.y_stride + first + column, d);
    }
}

}  // namespace

cudaError_t scale_rows(const ScaleRowsArgs& args, cudaStream_t stream) {
    scale_kernel<<<row_grid(args.n, args.width), kThreads, 0, stream>>>(args);
    return cudaGetLastError();
}

cudaError_t modulate_gradient(const ModulateGradientArgs& args, cudaStream_t stream) {
    if (args.width % 4 != 0 || args.width > 4 * kMaxFours * kNormThreads) {
        return cudaErrorInvalidValue;
    }
    const auto blocks = static_cast<unsigned>(args.n);
    if (args.d.bf16) {
        modulate_gradient_kernel<Bf16><<<blocks, kNormThreads, 0, stream>>>(args);
    } else {
        modulate_gradient_kernel<float><<<blocks, kNormThreads, 0, stream>>>(args);
    }
    return cudaGetLastError();
}

cudaError_t swiglu_gradient(const SwigluGradientArgs& args, cudaStream_t stream) {
    swiglu_gradient_kernel<<<row_grid(args.n, args.width), kThreads, 0, stream>>>(args);
    return cudaGetLastError();
}

cudaError_t heads_gradient(const HeadsGradientArgs& args, cudaStream_t stream) {
    constexpr int kMaxHead = 128;
    if (args.head_dim % 4 != 0 || args.head_dim > kMaxHead) {
        return cudaErrorInvalidValue;
    }
    const dim3 blocks(static_cast<unsigned>(args.n), blocks_for(int64_t{3} * args.n_head * 32));
    heads_gradient_kernel<<<blocks, kThreads, 0, stream>>>(args);
    return cudaGetLastError();
}

}  // namespace flux2::cuda
