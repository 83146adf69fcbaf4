// Operations of forward passes that keep what their gradients need, and these gradients, all in
// F32. Matrices may have any type: their values are converted, never those that they are multiplied
// with. d is the gradient of what the forward operation gave. Shapes are ggml order, fastest first.
#pragma once

#include "compute/graph.hpp"
#include "compute/operands.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2 {

// W x; w [in, out], x [in, n] -> [out, n]
ggml_tensor* exact_linear(Graph& g, ggml_tensor* w, ggml_tensor* x);
// y + W x; nobody may read y later.
ggml_tensor* add_exact_linear(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x);
// Their gradients for x: W^T d, and y + W^T d.
ggml_tensor* linear_gradient(Graph& g, ggml_tensor* w, ggml_tensor* d);
ggml_tensor* add_linear_gradient(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* d);
// The sum over all tokens of u v^T: u [m, n], v [k, n] -> [m, k]
ggml_tensor* outer_product(Graph& g, ggml_tensor* u, ggml_tensor* v);

// Of modulate(), for x [width, n]; added to `before`, which may be null.
ggml_tensor* modulate_gradient(Graph& g, ggml_tensor* x, const Mod& mod, ggml_tensor* d,
                               ggml_tensor* before);
// Of swiglu(), for gate and up, one after the other -> [2 * n_ff, n]; with `into` [width, n] in the
// last values of its rows, which is then what is returned.
ggml_tensor* swiglu_gradient(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* d,
                             ggml_tensor* into = nullptr);

// What attention() is given, and the result with what its gradient needs.
struct KeptAttention {
    ggml_tensor *q, *k, *v;  // [head_dim, n_head, n]
    ggml_tensor* kept;       // [head_dim * n_head + n_head, n]
    ggml_tensor* result;     // [head_dim * n_head, n], a view of it
};
KeptAttention keep_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

// For q [head_dim * n_head, n], and for k and v [2 * head_dim * n_head, n].
struct AttentionGradient {
    ggml_tensor *dq, *dkv;
};
AttentionGradient attention_gradient(Graph& g, const KeptAttention& attention, ggml_tensor* d);

// Of join_heads() with norms and a rope of neighbours, for the projection [at least 3 * width, n]
// of tokens from `first` on, whose rows begin with queries, keys and values. -> of that shape;
// values after these are not set.
struct ProjectedHeads {
    ggml_tensor *projection, *q_norm, *k_norm;
    int64_t first;
};
ggml_tensor* heads_gradient(Graph& g, const ProjectedHeads& heads, const AttentionGradient& d,
                            const Rope& rope, float eps = 1e-6f);

}  // namespace flux2
