#include "compute/cuda/token_ops.hpp"

#include "compute/cuda/row_values.cuh"

#include <type_traits>

namespace flux2::cuda {
namespace {

// Calls f with the types that two matrices have.
template <typename F>
cudaError_t with_types(bool in_bf16, bool out_bf16, const F& f) {
    if (in_bf16) {
        return out_bf16 ? f(__nv_bfloat16(), __nv_bfloat16()) : f(__nv_bfloat16(), float());
    }
    return out_bf16 ? f(float(), __nv_bfloat16()) : f(float(), float());
}

// ---- Norms: a block a token, whose values stay in registers ----

// x + gate * branch of four values
template <typename Branch>
__device__ float4 gated_sum(const GateArgs& args, int64_t token, int column) {
    float4 y = load_four<Branch>(args.branch.data, token * args.branch.stride + column);
    const float* gate = args.gate[token < args.n_first ? 0 : 1];
    if (gate != nullptr) {
        y = y * load_four<float>(gate, column);
    }
    return y + load_four<float>(args.x, token * args.width + column);
}

struct NoGate {};

// With a gate, x is first made by it.
template <typename In, typename Out, bool kCentred, typename Gate>
__global__ void __launch_bounds__(kNormThreads)
    norm(const __grid_constant__ NormArgs args, const __grid_constant__ Gate gate) {
    const int64_t token = blockIdx.x;
    const int set = token < args.n_first ? 0 : 1;
    const int n_fours = args.width / 4;
    float4 x[kMaxFours];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        const int four = threadIdx.x + i * kNormThreads;
        x[i] = {0, 0, 0, 0};
        if (four >= n_fours) {
            continue;
        }
        if constexpr (std::is_same_v<Gate, GateArgs>) {
            x[i] = gated_sum<In>(gate, token, 4 * four);
            store_four<float>(gate.y, token * gate.width + 4 * four, x[i]);
        } else {
            x[i] = load_four<In>(args.x.data, token * args.x.stride + 4 * four);
        }
        sum += total(x[i]);
    }
    const float mean = kCentred ? sum_of_block(sum) / args.width : 0;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        if (threadIdx.x + i * kNormThreads < n_fours) {
            x[i] = for_each(x[i], [&](float v) { return v - mean; });
            squares += total(x[i] * x[i]);
        }
    }
    const float factor = rsqrtf(sum_of_block(squares) / args.width + args.eps);
#pragma unroll
    for (int i = 0; i < kMaxFours; ++i) {
        const int four = threadIdx.x + i * kNormThreads;
        if (four >= n_fours) {
            break;
        }
        float4 y = for_each(x[i], [&](float v) { return v * factor; });
        const float4 scale = load_four<float>(args.scale[set], 4 * four);
        if constexpr (kCentred) {
            const float4 shift = load_four<float>(args.shift[set], 4 * four);
            y = y * for_each(scale, [](float v) { return 1 + v; }) + shift;
        } else {
            y = y * scale;
        }
        store_four<Out>(args.y.data, token * args.y.stride + 4 * four, y);
    }
}

// in_bf16: the type of x, or of the branch that a gate lets in.
template <typename Gate>
cudaError_t launch_norm(const NormArgs& args, const Gate& gate, bool in_bf16, cudaStream_t stream) {
    if (args.width % 4 != 0 || args.width > 4 * kMaxFours * kNormThreads) {
        return cudaErrorInvalidValue;
    }
    return with_types(in_bf16, args.y.bf16, [&](auto in, auto out) {
        using In = decltype(in);
        using Out = decltype(out);
        if (args.centred) {
            norm<In, Out, true><<<args.n, kNormThreads, 0, stream>>>(args, gate);
        } else {
            norm<In, Out, false><<<args.n, kNormThreads, 0, stream>>>(args, gate);
        }
        return cudaGetLastError();
    });
}

// ---- Value by value ----

constexpr int kThreads = kRowThreads;

template <typename In>
__global__ void __launch_bounds__(kThreads) gate_kernel(const __grid_constant__ GateArgs args) {
    const auto [token, column] = row_place();
    if (column >= args.width) {
        return;
    }
    store_four<float>(args.y, token * args.width + column, gated_sum<In>(args, token, column));
}

template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const __grid_constant__ SwigluArgs args) {
    const auto [token, column] = row_place();
    const int64_t to = token * args.y.stride + column;
    if (column < args.before_width) {
        store_four<Out>(args.y.data, to,
                        load_four<In>(args.before.data, token * args.before.stride + column));
        return;
    }
    const int i = column - args.before_width;
    if (i >= args.width) {
        return;
    }
    const float4 gate = load_four<In>(args.gate.data, token * args.gate.stride + i);
    const float4 up = load_four<In>(args.up.data, token * args.up.stride + i);
    store_four<Out>(args.y.data, to,
                    up * for_each(gate, [](float v) { return v / (1 + __expf(-v)); }));
}

// ---- Heads ----

__global__ void rope_table_kernel(const __grid_constant__ RopeTableArgs args) {
    const int n_pairs = args.head_dim / 2;
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= args.n * n_pairs) {
        return;
    }
    const int token = i / n_pairs;
    const int pairs_of_axis = n_pairs / args.n_axes;
    const int axis = i % n_pairs / pairs_of_axis;
    const int pair = i % n_pairs % pairs_of_axis;
    const float exponent = -static_cast<float>(pair) / static_cast<float>(pairs_of_axis);
    const float angle = static_cast<float>(args.axis[axis][token]) * powf(args.theta, exponent);
    args.table[2 * i] = cosf(angle);
    args.table[2 * i + 1] = sinf(angle);
}

// Pairs `pair` and `pair + 1` of a head, each value beside its partner.
template <typename T>
__device__ float4 load_pairs(const void* data, int64_t head, int pair, const HeadsArgs& args) {
    if (!args.halves) {
        return load_four<T>(data, head + 2 * pair);
    }
    const float2 low = load_two<T>(data, head + pair);
    const float2 high = load_two<T>(data, head + pair + args.head_dim / 2);
    return {low.x, high.x, low.y, high.y};
}

__device__ void store_pairs(void* data, int64_t head, int pair, const float4& v,
                            const HeadsArgs& args) {
    if (!args.halves) {
        store_four<__nv_bfloat16>(data, head + 2 * pair, v);
        return;
    }
    auto* y = static_cast<__nv_bfloat16*>(data) + head + pair;
    reinterpret_cast<__nv_bfloat162*>(y)[0] = __floats2bfloat162_rn(v.x, v.z);
    reinterpret_cast<__nv_bfloat162*>(y + args.head_dim / 2)[0] = __floats2bfloat162_rn(v.y, v.w);
}

// A warp a head of a token, two pairs of values a thread.
constexpr int kMaxHead = 128;

template <typename In>
__global__ void __launch_bounds__(kThreads) heads_kernel(const __grid_constant__ HeadsArgs args) {
    const int token = blockIdx.x;
    const int head = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) / 32;
    const int pair = 2 * (threadIdx.x % 32);
    if (head >= args.n_head) {
        return;
    }
    const bool is_first = token < args.part[0].n;
    const HeadsArgs::Part& part = args.part[is_first ? 0 : 1];
    const bool has_pairs = 2 * pair < args.head_dim;
    float4 x = {0, 0, 0, 0};
    if (has_pairs) {
        const int64_t row = token - (is_first ? 0 : args.part[0].n);
        x = load_pairs<In>(part.x.data, row * part.x.stride + head * args.head_dim, pair, args);
    }
    if (part.norm != nullptr) {
        float squares = total(x * x);
        for (int other = 16; other > 0; other /= 2) {
            squares += __shfl_xor_sync(~0u, squares, other);
        }
        const float factor = rsqrtf(squares / args.head_dim + args.eps);
        x = for_each(x, [&](float v) { return v * factor; });
    }
    if (!has_pairs) {
        return;
    }
    if (part.norm != nullptr) {
        x = x * load_pairs<float>(part.norm, 0, pair, args);
    }
    if (args.table != nullptr) {
        const float4 turn = load_four<float>(args.table, int64_t{token} * args.head_dim + 2 * pair);
        x = {x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x, x.z * turn.z - x.w * turn.w,
             x.z * turn.w + x.w * turn.z};
    }
    store_pairs(args.y, (int64_t{token} * args.n_head + head) * args.head_dim, pair, x, args);
}

}  // namespace

cudaError_t norm(const NormArgs& args, cudaStream_t stream) {
    return launch_norm(args, NoGate{}, args.x.bf16, stream);
}

cudaError_t add_gated_and_norm(const GateArgs& gate, const NormArgs& args, cudaStream_t stream) {
    return launch_norm(args, gate, gate.branch.bf16, stream);
}

cudaError_t add_gated(const GateArgs& args, cudaStream_t stream) {
    if (args.branch.bf16) {
        gate_kernel<__nv_bfloat16><<<row_grid(args.n, args.width), kThreads, 0, stream>>>(args);
    } else {
        gate_kernel<float><<<row_grid(args.n, args.width), kThreads, 0, stream>>>(args);
    }
    return cudaGetLastError();
}

cudaError_t swiglu(const SwigluArgs& args, cudaStream_t stream) {
    return with_types(args.gate.bf16, args.y.bf16, [&](auto in, auto out) {
        swiglu_kernel<decltype(in), decltype(out)>
            <<<row_grid(args.n, args.before_width + args.width), kThreads, 0, stream>>>(args);
        return cudaGetLastError();
    });
}

cudaError_t rope_table(const RopeTableArgs& args, cudaStream_t stream) {
    const int n = args.n * args.head_dim / 2;
    rope_table_kernel<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(args);
    return cudaGetLastError();
}

cudaError_t join_heads(const HeadsArgs& args, cudaStream_t stream) {
    const HeadsArgs::Part *a = &args.part[0], *b = &args.part[1];
    if (args.head_dim % 4 != 0 || args.head_dim > kMaxHead ||
        (b->n > 0 && a->x.bf16 != b->x.bf16)) {
        return cudaErrorInvalidValue;
    }
    const dim3 blocks(static_cast<unsigned>(a->n + b->n),
                      static_cast<unsigned>((args.n_head * 32 + kThreads - 1) / kThreads));
    if (a->x.bf16) {
        heads_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(args);
    } else {
        heads_kernel<float><<<blocks, kThreads, 0, stream>>>(args);
    }
    return cudaGetLastError();
}

}  // namespace flux2::cuda
