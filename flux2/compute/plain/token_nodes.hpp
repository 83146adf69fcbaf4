// Operations on tokens as nodes of our own (compute/plain/own_node): each does in one pass what
// takes several of ggml's. For each there are its parameters and what makes a node of it in any
// form; the plain form is in token_nodes.cpp. x [width, n] and results are F32 or BF16, vectors
// F32.
//
// Where a form reads a source in another order than it comes in, that source is given as `packed`
// too, which is what the node then gets.
#pragma once

#include "compute/operands.hpp"
#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <cstdint>
#include <span>

namespace flux2::own {

// factor * W x; w [in, out] and x [in, n], for kernels of the same type, BF16 or F16. The plain
// form takes any type. Sources w, x
extern const OwnOperation kLinear;
struct LinearParams {
    bool transposed = false;  // w is [out, in]
    float factor = 1;
};
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x, const NodeForm& form,
                    const LinearParams& params = {}, ggml_tensor* packed_x = nullptr);

// W x + up (down x) in one multiply: w [in + rank, out] is W and the columns of up, down [in, rank]
// is of the same type. x has at least `rank` spare values after each row, which kernels may use.
// Sources w, x, down
ggml_tensor* linear_with_columns(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_tensor* down,
                                 const NodeForm& form);

// A matrix w [in, out] of another type as BF16, with the columns of `after` [n, out] in BF16 behind
// its own unless that is null: [in + n, out]. Sources w, after
extern const OwnOperation kUnpack;
ggml_tensor* unpack(Graph& g, ggml_tensor* w, ggml_tensor* after);
// Quantised types that kernels unpack; those of F32 and F16 matrices they take as well.
bool can_unpack(ggml_type type);

// y + up (down x) in F32, in place of y; down [in, rank], up [rank, out]. Sources y, x, down, up
extern const OwnOperation kAddPair;
ggml_tensor* add_pair(Graph& g, ggml_tensor* y, ggml_tensor* x, ggml_tensor* down, ggml_tensor* up,
                      ggml_custom_op_t function);

// (1 + scale) * LayerNorm(x) + shift, eps 1e-6; sources x, then scale and shift of each span
extern const OwnOperation kModulate;
// x / rms(x) * scale; sources x, scale
extern const OwnOperation kRmsNorm;
struct NormParams {
    int64_t n_first;  // tokens of the first span
    float eps;
    bool centred;  // layer norm with shift; else RMS norm
};
ggml_tensor* modulate(Graph& g, ggml_tensor* x, std::span<const ModSpan> spans,
                      const NodeForm& form);
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* scale, float eps,
                      const NodeForm& form);

// x + gate * branch in F32; in the plain form gates may be null for 1. Sources x, branch, gates
extern const OwnOperation kAddGated;
struct GateParams {
    int64_t n_first;  // tokens of the first span
};
ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch,
                       std::span<const ModSpan> spans, const NodeForm& form);

// silu(gate) * up, appended to `before` when there is one; all of one type. Sources gate,
// up, before
extern const OwnOperation kSwiglu;
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before,
                    const NodeForm& form);

// Cosine and sine of each pair of a head's values [head_dim, n] in F32; every axis has its share of
// pairs. Sources the axes
extern const OwnOperation kRopeTable;
struct RopeParams {
    float theta;
};
ggml_tensor* rope_table(Graph& g, std::span<ggml_tensor* const> axes, int64_t head_dim,
                        float theta);

// -> [head_dim, n_head, n]; sources each part's x and norm, then the table of the rope
extern const OwnOperation kJoinHeads;
struct HeadsParams {
    int32_t n_parts;
    bool normalises, rotates;
    bool halves;  // as in Rope
    float eps;
};
ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps,
                        const NodeForm& form);

// -> [head_dim * n_head, n]; sources q, k, v, kept keys and values, mask. With keeps_sums the
// logarithms of the heads' sums of e^score come after each row of the result, in F32 whatever its
// type.
extern const OwnOperation kAttention;
struct AttentionParams {
    int64_t n_main;
    int64_t n_keys;  // that a query may see, kept ones included
    bool has_kept, has_mask;
    bool keeps_sums;
};
struct PackedKeys {
    ggml_tensor *k = nullptr, *v = nullptr;
};
ggml_tensor* attention(Graph& g, const AttentionInput& in, const NodeForm& form,
                       const PackedKeys& packed = {}, bool keeps_sums = false);

// Head sizes and widths that every form of these takes.
bool nodes_support(int64_t head_dim, int64_t width);

}  // namespace flux2::own
