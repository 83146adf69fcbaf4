// The convolution of compute/cuda/conv.hpp for Hopper alone (H100, H200), built for sm_90a. One
// warp keeps the copy engine busy, which fetches rectangles of the feature map and knows about the
// zeros around it; eight others multiply.
#pragma once

#include "compute/cuda/conv.hpp"

#include <cuda_runtime.h>

namespace flux2::cuda {

// Whether conv_hopper is worth it for these sizes, on a device that has Hopper's kernels.
bool conv_hopper_suits(const ConvArgs& args);

// Same contract as conv.
cudaError_t conv_hopper(const ConvArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
