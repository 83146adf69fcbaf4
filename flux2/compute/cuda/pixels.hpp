// Small changes of form on CUDA devices: planes and pixels, F32 and F16, softmax.
#pragma once

#include "compute/cuda/scale.hpp"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace flux2::cuda {

// Planes [channels][n_pixels] in F32 -> pixels [n_pixels][padded] in F16 times kScale. `padded` is
// `channels` rounded up to 8; what is added is zero.
struct PlanesToPixelsArgs {
    const float* planes = nullptr;
    half* pixels = nullptr;
    int64_t n_pixels = 0;
    int channels = 0;
};
cudaError_t planes_to_pixels(const PlanesToPixelsArgs& args, cudaStream_t stream);

// Pixels [n_pixels][channels] -> planes [channels][n_pixels], both F32.
struct PixelsToPlanesArgs {
    const float* pixels = nullptr;
    float* planes = nullptr;
    int64_t n_pixels = 0;
    int channels = 0;
};
cudaError_t pixels_to_planes(const PixelsToPlanesArgs& args, cudaStream_t stream);

// y = x * kScale. Both pointers must be aligned to 16 bytes.
struct ToHalfArgs {
    const float* x = nullptr;
    half* y = nullptr;
    int64_t n = 0;
};
cudaError_t to_half(const ToHalfArgs& args, cudaStream_t stream);

// Each row of scores [n_rows][n] -> softmax(scores * factor) * gain. Below 6e-5 F16 has fewer and
// fewer bits, which many small probabilities need: a gain of 1024, say, keeps them.
struct SoftmaxArgs {
    const float* scores = nullptr;
    half* probabilities = nullptr;
    int64_t n_rows = 0;
    int64_t n = 0;
    float factor = 1;
    float gain = 1;
};
cudaError_t softmax_rows(const SoftmaxArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
