// The first half of a pair of low rank on Hopper: few results for each token, from many values.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace flux2::cuda {

// y = down x. Matrices hold a token or a result a row; strides are values from row to row.
struct DownArgs {
    const __nv_bfloat16* x = nullptr;
    int64_t x_stride = 0;
    const __nv_bfloat16* down = nullptr;  // [rank][width]
    int64_t down_stride = 0;
    __nv_bfloat16* y = nullptr;  // may lie after the values of each row of x
    int64_t y_stride = 0;
    int n = 0;
    int width = 0;  // a multiple of 8, as are all strides
    int rank = 0;   // even, at most 128
};

// Whether the sizes are among those listed above, and the pointers aligned to 16 bytes (y's to 4).
bool hopper_down_takes(const DownArgs& args);

cudaError_t hopper_down(const DownArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
