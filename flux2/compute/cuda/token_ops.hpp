// What the networks do with tokens between their matrix multiplies. Matrices hold a token a row;
// strides are values from token to token. Values are F32 or BF16, vectors F32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flux2::cuda {

struct Matrix {
    const void* data = nullptr;
    bool bf16 = false;
    int64_t stride = 0;
};

struct MutableMatrix {
    void* data = nullptr;
    bool bf16 = false;
    int64_t stride = 0;
};

// The second set of vectors is for tokens from n_first on.
struct NormArgs {
    Matrix x;
    MutableMatrix y;
    int n = 0;
    int n_first = 0;
    int width = 0;  // a multiple of 4
    float eps = 0;
    bool centred = false;
    const float* shift[2] = {};  // of centred ones
    const float* scale[2] = {};
};
// y = (1 + scale) * LayerNorm(x) + shift when centred, else x / rms(x) * scale
cudaError_t norm(const NormArgs& args, cudaStream_t stream);

struct GateArgs {
    const float* x = nullptr;
    Matrix branch;
    float* y = nullptr;  // may be x
    int n = 0;
    int n_first = 0;
    int width = 0;              // a multiple of 4
    const float* gate[2] = {};  // null: 1
};
// y = x + gate * branch
cudaError_t add_gated(const GateArgs& args, cudaStream_t stream);
// The same, and the norm of its result in one pass; args.x is not read. Both results may
// overwrite the branch, row by row.
cudaError_t add_gated_and_norm(const GateArgs& gate, const NormArgs& args, cudaStream_t stream);

struct SwigluArgs {
    Matrix gate, up;
    Matrix before;
    MutableMatrix y;
    int n = 0;
    int width = 0;         // a multiple of 4
    int before_width = 0;  // a multiple of 4; 0 when there is nothing before
};
// y = values of before, then silu(gate) * up; all sources have one type
cudaError_t swiglu(const SwigluArgs& args, cudaStream_t stream);

// Cosine and sine of every pair of a head's values, for every token: [n][head_dim / 2][2].
struct RopeTableArgs {
    const int32_t* axis[4] = {};  // position of each token
    int n_axes = 0;
    int n = 0;
    int head_dim = 0;
    float theta = 0;
    float* table = nullptr;
};
cudaError_t rope_table(const RopeTableArgs& args, cudaStream_t stream);

// Heads of one or two ranges of tokens, concatenated: RMS-normalised when there is a
// norm, rotated when there is a table, and in BF16.
struct HeadsArgs {
    struct Part {
        Matrix x;                     // of one type in both
        const float* norm = nullptr;  // [head_dim]
        int n = 0;
    };
    Part part[2] = {};
    const float* table = nullptr;
    bool halves = false;  // a pair is values i and i + head_dim / 2, else 2 * i and 2 * i + 1
    int n_head = 0;
    int head_dim = 0;  // a multiple of 4, at most 128
    float eps = 0;
    void* y = nullptr;  // [n of both][n_head][head_dim]
};
cudaError_t join_heads(const HeadsArgs& args, cudaStream_t stream);

}  // namespace flux2::cuda
