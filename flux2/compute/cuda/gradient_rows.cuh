// What both gradients of attention need of each query and head: the logarithm of its sum, to the
// base 2, and the sum of its result times the result's gradient.
#pragma once

#include "compute/cuda/attention_gradient.hpp"
#include "compute/cuda/row_values.cuh"

#include <cmath>

namespace flux2::cuda {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kGradientRows = 128;  // queries of a head are filled up to a multiple of it

__host__ __device__ inline int padded_rows(int64_t n) {
    return static_cast<int>((n + kGradientRows - 1) / kGradientRows * kGradientRows);
}

// Fills args.rows [n_head][padded n].
cudaError_t make_gradient_rows(const AttentionGradientArgs& args, cudaStream_t stream);

// What comes before a kernel: these rows, and this much shared memory for it.
template <typename Kernel>
cudaError_t prepare_gradient(Kernel kernel, int n_shared_bytes, const AttentionGradientArgs& args,
                             cudaStream_t stream) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_shared_bytes);
    return status == cudaSuccess ? make_gradient_rows(args, stream) : status;
}

// A block for some tokens of a head.
inline dim3 gradient_grid(const AttentionGradientArgs& args, int n_tokens) {
    return dim3(static_cast<unsigned>((args.n + n_tokens - 1) / n_tokens),
                static_cast<unsigned>(args.n_head));
}

}  // namespace flux2::cuda
