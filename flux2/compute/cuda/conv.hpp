// Convolution on the tensor cores of CUDA devices, as a matrix multiply whose one side, the pixels
// under each tap of the filter, is gathered while it is copied to shared memory.
#pragma once

#include "compute/cuda/scale.hpp"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace flux2::cuda {

// Feature maps are [h][w][channels], channels fastest. y = conv(x) + bias + skip.
//
// With size 3 there are zeros around x; with stride 2 on its right and at its bottom only, and y
// is half as wide and high as x (rounded down). With scale 2 every pixel of x counts as 2x2 pixels.
struct ConvArgs {
    const half* x = nullptr;       // values times kScale, [height][width][in]
    const half* weight = nullptr;  // as pack_filter leaves it
    const float* bias = nullptr;   // [out]
    const void* skip = nullptr;    // of y's shape, F32 or F16 times kScale; may be null
    bool skip_is_half = false;
    void* y = nullptr;  // F32, or F16 times kScale
    bool y_is_half = false;
    int width = 0, height = 0;  // of x
    int in = 0;                 // channels of x, a multiple of 8
    int out = 0;
    int size = 3;    // of the filter, 1 or 3
    int stride = 1;  // 1, or 2 with size 3
    int scale = 1;   // 1, or 2 with size 3 and stride 1
};

int conv_y_width(const ConvArgs& args);
int conv_y_height(const ConvArgs& args);

// Whether the sizes are among those listed above.
bool conv_takes(const ConvArgs& args);

// All pointers must be aligned to 16 bytes. cudaErrorInvalidValue unless conv_takes the sizes.
cudaError_t conv(const ConvArgs& args, cudaStream_t stream);

// Channels of a feature map that conv reads: filled up with zeros to a multiple of 8.
constexpr int padded_channels(int channels) {
    return (channels + 7) / 8 * 8;
}

// A filter [size, size, in, out] in ggml's order -> [size * size][out][padded_channels(in)] in F16.
struct PackFilterArgs {
    const void* weight = nullptr;
    bool weight_is_half = false;  // else F32
    half* packed = nullptr;
    int in = 0;  // as the file has it, not padded
    int out = 0;
    int size = 3;
};
cudaError_t pack_filter(const PackFilterArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
