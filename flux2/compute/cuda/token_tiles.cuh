// Tiles of tokens in shared memory, as attention by mma and its gradient read them.
#pragma once

#include "compute/cuda/tensor_core.cuh"

#include <cuda_bf16.h>

#include <cstdint>

namespace flux2::cuda {

// The place of 16 bytes in a tile of rows, so that neither filling it nor ldmatrix makes two
// threads wait for the same bank.
template <int kHead>
__device__ int place(int row, int chunk) {
    constexpr int kChunks = kHead / 8;
    const int swizzled = kChunks >= 8 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
    return (row * kChunks + swizzled) * 16;
}

// By all threads of a block. Rows beyond the last one become zeros.
template <int kHead, int kRows, int kThreads>
__device__ void load_tile(uint32_t to, const __nv_bfloat16* from, int64_t stride, int n_rows) {
    constexpr int kChunks = kHead / 8;
    for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
        const int row = i / kChunks;
        const bool exists = row < n_rows;
        copy_16(to + place<kHead>(row, i % kChunks),
                from + (exists ? row : 0) * stride + i % kChunks * 8, exists);
    }
}

__device__ inline uint32_t pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}

}  // namespace flux2::cuda
