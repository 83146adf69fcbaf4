// Operations on tokens as nodes of our own (compute/plain/own_node): each does in one pass what
// takes several of ggml's. x [width, n] and results are F32 or BF16, vectors F32. The functions
// behind them are plain C++, in the order of the formula: what a kernel must agree with.
#pragma once

#include "compute/ops/token_ops.hpp"
#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <cstdint>
#include <span>

namespace flux2::own {

struct LinearParams {
    bool transposed;
    float factor;
};
// y = W x; w [in, out] and x [in, n] of the same type, BF16 or F16.
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to);
// The same with w [out, in], times a factor.
ggml_tensor* linear_transposed(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to,
                               float factor);
void linear_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct NormParams {
    int64_t n_first;  // tokens of the first span
    float eps;
    bool centred;  // layer norm with shift; else RMS norm
};
// (1 + scale) * LayerNorm(x) + shift; sources x, then scale and shift of each span
ggml_tensor* modulate(Graph& g, ggml_tensor* x, std::span<const ModSpan> spans, ggml_type to);
// x / rms(x) * scale; sources x, scale
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* scale, float eps, ggml_type to);
void norm_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct GateParams {
    int64_t n_first;
};
// x + gate * branch in F32; a gate may be null for 1. Sources x, branch, gates
ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch,
                       std::span<const ModSpan> spans);
void add_gated_on_cpu(ggml_tensor* y, int ith, int nth, void*);

// silu(gate) * up, behind the values of `before` when there is one; all of one type.
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before,
                    ggml_type to);
void swiglu_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct RopeParams {
    float theta;
};
// Cosine and sine of each pair of a head's values [head_dim, n]; every axis has its share of pairs.
ggml_tensor* rope_table(Graph& g, std::span<ggml_tensor* const> axes, int64_t head_dim,
                        float theta);
void rope_table_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct HeadsParams {
    int32_t n_parts;
    bool normalises, turns;
    bool halves;  // as in Rope
    float eps;
};
// BF16 [head_dim, n_head, n]; sources each part's x and norm, then the table of the rope
ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps);
void join_heads_on_cpu(ggml_tensor* y, int ith, int nth, void*);

struct AttentionParams {
    int64_t n_main;
    bool has_kept, has_mask;
};
// BF16 [head_dim * n_head, n], from BF16; sources q, k, v, kept keys and values, mask
ggml_tensor* attention(Graph& g, const AttentionInput& in);
void attention_on_cpu(ggml_tensor* y, int ith, int nth, void*);

// Head sizes and widths that every form of these takes.
bool nodes_support(int64_t head_dim, int64_t width);

}  // namespace flux2::own
