// The gradients of attention on tensor cores, some queries and keys at a time. Weights of keys are
// computed again from the scores and the logarithms of their sums. Results are the same bits each
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flux2::cuda {

// Heads of tokens: a token's heads are contiguous, strides are values from token to token.
struct TokenHeads {
    const __nv_bfloat16* data = nullptr;
    int64_t stride = 0;
};

struct AttentionGradientArgs {
    TokenHeads q, k, v;
    TokenHeads out, d;                // what attention gave, and its gradient
    const float* log_sums = nullptr;  // as AttentionArgs has them
    int64_t log_sums_stride = 0;
    float2* rows = nullptr;       // room for attention_gradient_bytes()
    __nv_bfloat16* dq = nullptr;  // of query_gradient
    __nv_bfloat16* dk = nullptr;  // of key_gradient
    __nv_bfloat16* dv = nullptr;  // likewise
    int64_t result_stride = 0;
    int n = 0;
    int n_head = 0;
    int head_dim = 0;  // 32, 64 or 128
};

size_t attention_gradient_bytes(int64_t n, int64_t n_head);

cudaError_t query_gradient(const AttentionGradientArgs& args, cudaStream_t stream);
cudaError_t key_gradient(const AttentionGradientArgs& args, cudaStream_t stream);

// The same by the matrix units of Hopper (sm_90), for head_dim 128.
bool hopper_gradient_supports(const AttentionGradientArgs& args);
cudaError_t hopper_query_gradient(const AttentionGradientArgs& args, cudaStream_t stream);
cudaError_t hopper_key_gradient(const AttentionGradientArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
