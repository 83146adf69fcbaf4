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

// Sixteen rows of a warp: thread t has rows t / 4 and t / 4 + 8, and of every eight columns the two
// from 2 * (t % 4) on.
template <int kColumns>
using Sums = float[kColumns / 8][4];

// sums += factors times the rows of a tile
template <int kHead, int kRows>
__device__ void add_rows(Sums<kHead>& sums, const Sums<kRows>& factors, uint32_t tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
        const float(&left)[4] = factors[2 * k];
        const float(&right)[4] = factors[2 * k + 1];
        const uint32_t a[4] = {pack(left[0], left[1]), pack(left[2], left[3]),
                               pack(right[0], right[1]), pack(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < kHead / 8; n += 2) {
            uint32_t b[4];
            const int row = 16 * k + lane / 8 % 2 * 8 + lane % 8;
            load_matrices_transposed(b, tile + place<kHead>(row, n + lane / 16));
            multiply_add_bf16(sums[n], a, b[0], b[1]);
            multiply_add_bf16(sums[n + 1], a, b[2], b[3]);
        }
    }
}

}  // namespace flux2::cuda
