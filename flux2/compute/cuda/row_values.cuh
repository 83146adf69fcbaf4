// Values of tokens a few at a time, and sums over a block of threads; for kernels on rows.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace flux2::cuda {

template <typename T>
__device__ float4 load_four(const void* data, int64_t i) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return reinterpret_cast<const float4*>(static_cast<const float*>(data) + i)[0];
    } else {
        const uint2 bits =
            reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(data) + i)[0];
        const float2 low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.x));
        const float2 high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.y));
        return {low.x, low.y, high.x, high.y};
    }
}

template <typename T>
__device__ void store_four(void* data, int64_t i, const float4& v) {
    if constexpr (sizeof(T) == sizeof(float)) {
        reinterpret_cast<float4*>(static_cast<float*>(data) + i)[0] = v;
    } else {
        const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y);
        const __nv_bfloat162 high = __floats2bfloat162_rn(v.z, v.w);
        reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(data) + i)[0] = {
            reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high)};
    }
}

template <typename T>
__device__ float2 load_two(const void* data, int64_t i) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return reinterpret_cast<const float2*>(static_cast<const float*>(data) + i)[0];
    } else {
        return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(
            static_cast<const __nv_bfloat16*>(data) + i)[0]);
    }
}

template <typename F>
__device__ float4 for_each(const float4& a, const F& f) {
    return {f(a.x), f(a.y), f(a.z), f(a.w)};
}

__device__ inline float4 operator+(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__device__ inline float4 operator*(const float4& a, const float4& b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}

__device__ inline float total(const float4& a) {
    return a.x + a.y + a.z + a.w;
}

// Kernels value by value: a thread has four values of a row; blocks are rows by parts of a row.
constexpr int kRowThreads = 256;

struct RowPlace {
    int64_t token;
    int column;
};

__device__ inline RowPlace row_place() {
    return {blockIdx.x, static_cast<int>((blockIdx.y * kRowThreads + threadIdx.x) * 4)};
}

inline dim3 row_grid(int n, int width) {
    return dim3(static_cast<unsigned>(n),
                static_cast<unsigned>((width / 4 + kRowThreads - 1) / kRowThreads));
}

// Kernels with a block for a token, whose values stay in registers.
constexpr int kNormThreads = 256;
constexpr int kMaxFours = 8;  // of a thread, so rows of at most 8192

__device__ inline float sum_of_block(float value) {
    __shared__ float parts[kNormThreads / 32];
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(~0u, value, distance);
    }
    __syncthreads();  // the sum before this one was read by all
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float sum = 0;
    for (const float part : parts) {
        sum += part;
    }
    return sum;
}

}  // namespace flux2::cuda
