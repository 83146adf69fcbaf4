// Group norm on CUDA devices for feature maps with contiguous channels.
#pragma once

#include "compute/cuda/scale.hpp"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace flux2::cuda {

constexpr int kNormGroups = 32;
constexpr float kNormEps = 1e-6f;

struct GroupNormArgs {
    const float* x = nullptr;       // [n_pixels][channels]
    const float* weight = nullptr;  // [channels]
    const float* bias = nullptr;    // [channels]
    half* y = nullptr;              // x's shape, times kScale
    void* workspace = nullptr;      // group_norm_workspace_bytes
    int64_t n_pixels = 0;
    int channels = 0;   // a multiple of 32, at most 1024
    bool silu = false;  // after the norm
};

size_t group_norm_workspace_bytes(const GroupNormArgs& args);

// All pointers must be aligned to 16 bytes. cudaErrorInvalidValue for sizes not listed above.
cudaError_t group_norm(const GroupNormArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
