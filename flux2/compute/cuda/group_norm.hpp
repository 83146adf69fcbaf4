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

// What is normalised, [rows][width][channels].
struct NormMap {
    const void* data = nullptr;
    bool is_half = false;  // F16 times kScale, else F32
    int64_t width = 0, rows = 0;
    int64_t height = 0;  // of the map that it is some rows of; at most 32768
    int channels = 0;    // a multiple of 32, at most 1024
};

// Bytes of the workspace that both functions take.
size_t group_norm_workspace_bytes(const NormMap& x);

// Moments of x: [2][kNormGroups], means and sums of squared distances from them. Those of bands
// that begin at every fourth row of a map, joined, are those of the map.
struct MomentsArgs {
    NormMap x;
    void* workspace = nullptr;
    double* moments = nullptr;
};
cudaError_t group_moments(const MomentsArgs& args, cudaStream_t stream);

struct GroupNormArgs {
    NormMap x;
    const float* weight = nullptr;  // [channels]
    const float* bias = nullptr;    // [channels]
    half* y = nullptr;              // x's shape, times kScale
    void* workspace = nullptr;
    bool silu = false;  // after the norm
    // Moments of a map of which x is a part, [n_bands][2][kNormGroups]: of bands of band_pixels,
    // and a last one of what is left of all_pixels. Null: those of x are taken.
    const double* moments = nullptr;
    int64_t n_bands = 0, band_pixels = 0, all_pixels = 0;
};

// All pointers must be aligned to 16 bytes. cudaErrorInvalidValue for sizes not listed above.
cudaError_t group_norm(const GroupNormArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
