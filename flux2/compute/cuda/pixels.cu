#include "compute/cuda/pixels.hpp"

namespace flux2::cuda {
namespace {

// ---- Transposes: through tiles in shared memory, so that both sides are accessed in rows ----

constexpr int kSide = 32;
constexpr int kLines = 8;  // of a tile that the block's threads take at a time

// from [n_rows][n_columns] -> to [n_columns][width], with zeros where width exceeds n_rows.
template <typename From, typename To, typename F>
__device__ void transpose(const From* from, int64_t n_rows, int64_t n_columns, To* to,
                          int64_t width, int64_t first_row, int64_t first_column, const F& f) {
    __shared__ From tile[kSide][kSide + 1];
    const int x = static_cast<int>(threadIdx.x);
    for (int y = static_cast<int>(threadIdx.y); y < kSide; y += kLines) {
        const bool inside = first_row + y < n_rows && first_column + x < n_columns;
        tile[y][x] = inside ? from[(first_row + y) * n_columns + first_column + x] : From{};
    }
    __syncthreads();
    for (int y = static_cast<int>(threadIdx.y); y < kSide; y += kLines) {
        if (first_column + y < n_columns && first_row + x < width) {
            to[(first_column + y) * width + first_row + x] = f(tile[x][y]);
        }
    }
}

__global__ void planes_to_pixels_kernel(PlanesToPixelsArgs a, int padded) {
    transpose(a.planes, a.channels, a.n_pixels, a.pixels, padded,
              static_cast<int64_t>(blockIdx.y) * kSide, static_cast<int64_t>(blockIdx.x) * kSide,
              [](float v) { return __float2half(v * kScale); });
}

__global__ void pixels_to_planes_kernel(PixelsToPlanesArgs a) {
    transpose(a.pixels, a.n_pixels, a.channels, a.planes, a.n_pixels,
              static_cast<int64_t>(blockIdx.x) * kSide, static_cast<int64_t>(blockIdx.y) * kSide,
              [](float v) { return v; });
}

dim3 tiles(int64_t n_pixels, int channels) {
    return {static_cast<unsigned>((n_pixels + kSide - 1) / kSide),
            static_cast<unsigned>((channels + kSide - 1) / kSide)};
}

// ---- F32 to F16 ----

constexpr int kHalfThreads = 256;

__global__ void to_half_kernel(ToHalfArgs a) {
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * kHalfThreads + threadIdx.x) * 8;
    if (at + 8 <= a.n) {
        const float4* x = reinterpret_cast<const float4*>(a.x + at);
        const float4 v[2] = {x[0], x[1]};
        half2 y[4];
        for (int i = 0; i < 2; ++i) {
            y[2 * i] = __floats2half2_rn(v[i].x * kScale, v[i].y * kScale);
            y[2 * i + 1] = __floats2half2_rn(v[i].z * kScale, v[i].w * kScale);
        }
        *reinterpret_cast<uint4*>(a.y + at) = *reinterpret_cast<const uint4*>(y);
    } else {
        for (int64_t i = at; i < a.n; ++i) {
            a.y[i] = __float2half(a.x[i] * kScale);
        }
    }
}

// ---- Softmax: one block for each row ----

constexpr int kSoftmaxThreads = 512;

// The largest score so far and the sum of exp(score - largest).
struct Running {
    float largest = -INFINITY;
    float sum = 0;
};

__device__ Running join(const Running& a, const Running& b) {
    const float largest = fmaxf(a.largest, b.largest);
    if (largest == -INFINITY) {
        return a;
    }
    return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

__device__ Running join_block(Running mine) {
    __shared__ Running warps[kSoftmaxThreads / 32];
    for (int step = 16; step > 0; step /= 2) {
        mine = join(mine, {__shfl_xor_sync(0xffffffff, mine.largest, step),
                           __shfl_xor_sync(0xffffffff, mine.sum, step)});
    }
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    Running all = warps[0];
    for (int i = 1; i < kSoftmaxThreads / 32; ++i) {
        all = join(all, warps[i]);
    }
    return all;
}

// f(quad or value number, what lies there), over a row; V is float4 or float.
template <typename V, typename F>
__device__ void for_row(const float* row, int64_t n, const F& f) {
    constexpr auto kEach = static_cast<int64_t>(sizeof(V) / sizeof(float));
    const V* values = reinterpret_cast<const V*>(row);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n / kEach; i += kSoftmaxThreads) {
        f(i, values[i]);
    }
}

__device__ float largest_of(float v) {
    return v;
}
__device__ float largest_of(const float4& v) {
    return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

__device__ float exp_sum(float v, float largest) {
    return __expf(v - largest);
}
__device__ float exp_sum(const float4& v, float largest) {
    return __expf(v.x - largest) + __expf(v.y - largest) + __expf(v.z - largest) +
           __expf(v.w - largest);
}

__device__ float times(float v, float factor) {
    return v * factor;
}
__device__ float4 times(const float4& v, float factor) {
    return {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
}

__device__ void write_exp(half* to, int64_t i, float v, float largest, float scale) {
    to[i] = __float2half(__expf(v - largest) * scale);
}
__device__ void write_exp(half* to, int64_t i, const float4& v, float largest, float scale) {
    const half2 y[2] = {
        __floats2half2_rn(__expf(v.x - largest) * scale, __expf(v.y - largest) * scale),
        __floats2half2_rn(__expf(v.z - largest) * scale, __expf(v.w - largest) * scale),
    };
    reinterpret_cast<uint2*>(to)[i] = *reinterpret_cast<const uint2*>(y);
}

template <typename V>
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_kernel(SoftmaxArgs a) {
    const float* row = a.scores + static_cast<int64_t>(blockIdx.x) * a.n;
    half* to = a.probabilities + static_cast<int64_t>(blockIdx.x) * a.n;
    Running mine;
    for_row<V>(row, a.n, [&](int64_t, const V& score) {
        const V v = times(score, a.factor);
        const float largest = fmaxf(mine.largest, largest_of(v));
        mine.sum = mine.sum * __expf(mine.largest - largest) + exp_sum(v, largest);
        mine.largest = largest;
    });
    const Running all = join_block(mine);
    const float scale = a.gain / all.sum;
    for_row<V>(row, a.n, [&](int64_t i, const V& score) {
        write_exp(to, i, times(score, a.factor), all.largest, scale);
    });
}

}  // namespace

cudaError_t planes_to_pixels(const PlanesToPixelsArgs& args, cudaStream_t stream) {
    if (args.n_pixels <= 0 || args.channels <= 0) {
        return cudaErrorInvalidValue;
    }
    const int padded = (args.channels + 7) / 8 * 8;
    planes_to_pixels_kernel<<<tiles(args.n_pixels, padded), dim3(kSide, kLines), 0, stream>>>(
        args, padded);
    return cudaGetLastError();
}

cudaError_t pixels_to_planes(const PixelsToPlanesArgs& args, cudaStream_t stream) {
    if (args.n_pixels <= 0 || args.channels <= 0) {
        return cudaErrorInvalidValue;
    }
    pixels_to_planes_kernel<<<tiles(args.n_pixels, args.channels), dim3(kSide, kLines), 0,
                              stream>>>(args);
    return cudaGetLastError();
}

cudaError_t to_half(const ToHalfArgs& args, cudaStream_t stream) {
    if (args.n <= 0) {
        return cudaErrorInvalidValue;
    }
    constexpr int64_t kEach = kHalfThreads * 8;
    to_half_kernel<<<static_cast<unsigned>((args.n + kEach - 1) / kEach), kHalfThreads, 0,
                     stream>>>(args);
    return cudaGetLastError();
}

cudaError_t softmax_rows(const SoftmaxArgs& args, cudaStream_t stream) {
    if (args.n_rows <= 0 || args.n <= 0) {
        return cudaErrorInvalidValue;
    }
    const auto blocks = static_cast<unsigned>(args.n_rows);
    if (args.n % 4 == 0) {
        softmax_kernel<float4><<<blocks, kSoftmaxThreads, 0, stream>>>(args);
    } else {
        softmax_kernel<float><<<blocks, kSoftmaxThreads, 0, stream>>>(args);
    }
    return cudaGetLastError();
}

}  // namespace flux2::cuda
