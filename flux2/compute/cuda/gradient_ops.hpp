// What training does with tokens between its matrix multiplies, forwards and backwards
// (compute/plain/gradient_nodes). Matrices hold a token a row; strides are values from token to
// token. What matrices are multiplied with is BF16, streams and vectors are F32.
#pragma once

#include "compute/cuda/token_ops.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace flux2::cuda {

struct Bf16Rows {
    const __nv_bfloat16* data = nullptr;
    int64_t stride = 0;
};

struct ScaleRowsArgs {
    const float* x = nullptr;
    int64_t x_stride = 0;
    const float* scale = nullptr;
    __nv_bfloat16* y = nullptr;
    int64_t y_stride = 0;
    int n = 0;
    int width = 0;  // a multiple of 4
};
// y = x * scale
cudaError_t scale_rows(const ScaleRowsArgs& args, cudaStream_t stream);

struct ModulateGradientArgs {
    const float* x = nullptr;
    int64_t x_stride = 0;
    const float* scale = nullptr;
    Matrix d;
    const float* before = nullptr;  // may be null
    int64_t before_stride = 0;
    float* y = nullptr;  // [n][width]
    int n = 0;
    int width = 0;  // a multiple of 4
    float eps = 0;
};
// y = before + (g - mean(g) - x mean(g x)) / sigma with the normalised x and g = d (1 + scale)
cudaError_t modulate_gradient(const ModulateGradientArgs& args, cudaStream_t stream);

struct SwigluGradientArgs {
    Bf16Rows gate, up, d;
    __nv_bfloat16* y = nullptr;  // where the gate's part begins; that of up follows it
    int64_t y_stride = 0;
    int n = 0;
    int width = 0;  // of gate and up, a multiple of 4
};
cudaError_t swiglu_gradient(const SwigluGradientArgs& args, cudaStream_t stream);

struct HeadsGradientArgs {
    Bf16Rows dq, dkv;  // of the tokens of y
    Bf16Rows projection;
    const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]
    const float* table = nullptr;                      // [n][head_dim], of the tokens of y
    __nv_bfloat16* y = nullptr;
    int64_t y_stride = 0;
    int n = 0;
    int n_head = 0;
    int head_dim = 0;  // a multiple of 4, at most 128
    float eps = 0;
};
cudaError_t heads_gradient(const HeadsGradientArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
