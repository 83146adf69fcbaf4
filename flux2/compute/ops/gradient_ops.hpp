// Operations of forward passes that keep what their gradients need, and these gradients. On CPUs
// all is F32. On NVIDIA GPUs what matrices are multiplied with is BF16, as in a forward pass there,
// and so are the gradients of it; sums are F32, and so are the streams that blocks add to. Matrices
// may have any type: their values are converted. d is the gradient of what the forward operation
// gave. Shapes are ggml order, fastest first.
#pragma once

#include "compute/graph.hpp"
#include "compute/operands.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2 {

// Of what matrices are multiplied with, in graphs of this form.
ggml_type trained_type(const Form& form);

// A matrix as products take it in such a graph: itself, or its values converted. Products convert
// one that is given as it is; so one that is used often is converted once.
ggml_tensor* as_matrix(Graph& g, ggml_tensor* w);

// W x; w [in, out], x [in, n] -> [out, n], of type `to` on NVIDIA GPUs
ggml_tensor* exact_linear(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to = GGML_TYPE_F32);
// y + W x; nobody may read y later.
ggml_tensor* add_exact_linear(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x);
// Their gradients for x: W^T d, and y + W^T d.
ggml_tensor* linear_gradient(Graph& g, ggml_tensor* w, ggml_tensor* d);
ggml_tensor* add_linear_gradient(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* d);
// The sum over all tokens of u v^T: u [m, n], v [k, n] -> [m, k]
ggml_tensor* outer_product(Graph& g, ggml_tensor* u, ggml_tensor* v);

// Of add_gated() with one span, for the branch: gate * d
ggml_tensor* gate_gradient(Graph& g, const Mod& mod, ggml_tensor* d);
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
    ggml_tensor* kept;       // [head_dim * n_head, n] and the sums (own::kAttention)
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
