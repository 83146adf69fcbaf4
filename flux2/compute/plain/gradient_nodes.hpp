// What backward passes need, as nodes of our own (compute/plain/own_node), in F32 or BF16; d is
// always the gradient of what the forward operation gave. For each there are its parameters and
// what makes a node of it in any form; the plain form is in gradient_nodes.cpp. Rows of sources may
// lie apart.
//
// The gradient of a product by a frozen matrix is a product too: own::linear with `transposed`.
#pragma once

#include "compute/operands.hpp"
#include "compute/plain/own_node.hpp"
#include "compute/plain/token_nodes.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::own {

// y + W x, in place of y; w as in linear. Sources y, w, x
extern const OwnOperation kAddLinear;
ggml_tensor* add_linear(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x,
                        ggml_custom_op_t function, const LinearParams& params = {});

// The sum over all tokens of u v^T: u [m, n], v [k, n] -> [m, k]. Sources u, v
extern const OwnOperation kOuterProduct;
ggml_tensor* outer_product(Graph& g, ggml_tensor* u, ggml_tensor* v, const NodeForm& form);

// Every row of x [width, n] times a vector [width]. Sources x, scale
extern const OwnOperation kScaleRows;
ggml_tensor* scale_rows(Graph& g, ggml_tensor* x, ggml_tensor* scale, const NodeForm& form);

// Of modulate() with one span, for x; added to `before` when there is one. Sources x, scale, d,
// before
extern const OwnOperation kModulateGradient;
struct ModulateGradientParams {
    float eps;
};
ggml_tensor* modulate_gradient(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* d,
                               ggml_tensor* before, const NodeForm& form);

// Of silu(gate) * up, both [n_ff, n], for gate and up -> [2 * n_ff, n]. Sources gate, up, d
// With `into` [width, n], the last 2 * n_ff values of its rows are replaced. Sources into, gate,
// up,
// d
extern const OwnOperation kSwigluGradient;
ggml_tensor* swiglu_gradient(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* d,
                             ggml_tensor* into, const NodeForm& form);

// What attention gave, with the logarithms of its sums (own::attention with keeps_sums), and the
// gradient of its result.
struct AttentionGradientInput {
    ggml_tensor *q, *k, *v;  // [head_dim, n_head, n]
    ggml_tensor* kept;       // [head_dim * n_head, n] and the sums
    ggml_tensor* d;          // [head_dim * n_head, n]
};
// In other orders, for forms that want them.
struct PackedForGradient {
    ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr, *d = nullptr;  // panels of tokens
    ggml_tensor *q_channels = nullptr, *k_channels = nullptr, *d_channels = nullptr;
};
// Of attention, for q -> [head_dim * n_head, n]. Sources q, k, v, kept, d; with packed: q, k, v,
// kept, d, k_channels
extern const OwnOperation kQueryGradient;
ggml_tensor* query_gradient(Graph& g, const AttentionGradientInput& in, const NodeForm& form,
                            const PackedForGradient& packed = {});
// For k and v -> [2 * head_dim * n_head, n]. Sources q, k, v, kept, d; with packed: q, k, v, kept,
// d, packed d, q_channels, d_channels
extern const OwnOperation kKeyGradient;
ggml_tensor* key_gradient(Graph& g, const AttentionGradientInput& in, const NodeForm& form,
                          const PackedForGradient& packed = {});

// Of join_heads with norms and rope, for the projection [at least 3 * width, n] of some tokens,
// from `first` on, whose rows begin with queries, keys and values. -> of the projection's shape;
// what comes after the values in a row is left alone. Sources dq, dkv, projection, q_norm, k_norm,
// table
extern const OwnOperation kHeadsGradient;
struct HeadsGradientParams {
    int64_t first;
    float eps;
};
struct HeadsGradientInput {
    ggml_tensor *dq, *dkv;  // as above, of all tokens
    ggml_tensor* projection;
    ggml_tensor *q_norm, *k_norm;  // [head_dim]
    ggml_tensor* table;            // of the rope, neighbours
    int64_t first;
};
ggml_tensor* heads_gradient(Graph& g, const HeadsGradientInput& in, float eps,
                            const NodeForm& form);

}  // namespace flux2::own
