// Matrices of other types to BF16 on CUDA devices.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace flux2::cuda {

enum class BlockType { f32, f16, q8_0, q4_0, q5_0, q4_k, q5_k, q6_k };

// Each row of y has the values of that row of `blocks`, then those of `after`.
struct UnpackArgs {
    const void* blocks = nullptr;  // [n_rows][n_in], without gaps
    BlockType type = BlockType::q8_0;
    const __nv_bfloat16* after = nullptr;  // [n_rows][n_after], without gaps; may be null
    __nv_bfloat16* y = nullptr;
    int64_t y_stride = 0;  // values from row to row, a multiple of 8
    int n_rows = 0;
    int n_in = 0;     // a whole number of blocks
    int n_after = 0;  // a multiple of 8
};

// `after` and y must be aligned to 16 bytes. cudaErrorInvalidValue for sizes not listed above.
cudaError_t unpack(const UnpackArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
