// Attention on tensor cores: scores of a few queries and keys at a time, never all of them in
// memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace flux2::cuda {

// Keys and values of some tokens. A token's heads are contiguous; strides are values from token
// to token.
struct KeysValues {
    const __nv_bfloat16* k = nullptr;
    const __nv_bfloat16* v = nullptr;
    int64_t k_stride = 0;
    int64_t v_stride = 0;
    int n = 0;
};

// softmax(q k^T / sqrt(head_dim) + mask) v. Query head j uses key head j / (n_head / n_head_kv).
struct AttentionArgs {
    const __nv_bfloat16* q = nullptr;
    int64_t q_stride = 0;
    KeysValues own;
    KeysValues kept;              // seen by the first n_main queries after their own; n may be 0
    const float* mask = nullptr;  // [n_queries][own.n], or null
    __nv_bfloat16* out = nullptr;
    int64_t out_stride = 0;
    // Of every query and head the logarithm of the sum of e^score; null: not wanted. The stride is
    // in floats from query to query.
    float* log_sums = nullptr;
    int64_t log_sums_stride = 0;
    int n_queries = 0;
    // Queries from here on see only their own keys from here on; n_queries when there are no such.
    int n_main = 0;
    int n_head = 0;
    int n_head_kv = 0;
    int head_dim = 0;  // 32, 64 or 128
};

// The architecture that the code for the current device was compiled for, such as 80; 0 when there
// is none. Older than 80 it computes nothing.
int attention_architecture();

cudaError_t attention(const AttentionArgs& args, cudaStream_t stream);

// The same by the matrix units of Hopper (sm_90), for head_dim 128; not for a mask and kept keys.
// Whether this build has it for the current device, which must be of compute capability 9.0: others
// may be given the kernel without its body.
bool has_hopper_attention();
bool hopper_attention_supports(const AttentionArgs& args);
cudaError_t hopper_attention(const AttentionArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
