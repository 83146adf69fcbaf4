// The operations that transformers consist of. Each has up to three forms, which a graph's Form
// chooses from: ggml's operations, which every device has; nodes of our own
// (compute/plain/token_nodes) as CPUs compute them (compute/cpu); the same nodes as NVIDIA GPUs do
// (compute/cuda). Shapes are ggml order, fastest first.
#pragma once

#include "compute/graph.hpp"
#include "compute/operands.hpp"
#include "compute/weights.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <span>

namespace flux2 {

// How a network with these weights is computed best: heads of head_dim values, tokens of `width`.
Form choose_form(const Backend& backend, const Weights& weights, int64_t head_dim, int64_t width);

// Whether linear() takes pairs of low rank as columns of their matrices (compute/low_rank).
bool takes_columns(const Form& form);

// y = W x, with what adapters add to it. Nothing else multiplies by a weight matrix. w [in, out], x
// [in, n] -> [out, n] in F32, or in the type that the graph's activations have.
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x);
ggml_tensor* linear_activations(Graph& g, ggml_tensor* w, ggml_tensor* x);

// x / rms(x) * weight over the first dimension.
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps);

// Columns [first, first + n) of x [m, N] as a view.
ggml_tensor* columns(Graph& g, ggml_tensor* x, int64_t first, int64_t n);

// One after the other; all parts have the same m. A single one is returned as it is.
ggml_tensor* join_columns(Graph& g, std::span<ggml_tensor* const> parts);

// ---- Modulation ----

// (1 + scale) * LN(x) + shift; LayerNorm without weights, eps 1e-6.
ggml_tensor* modulate(Graph& g, ggml_tensor* x, const ModSpans& spans);

// x + gate * branch
ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch, const ModSpans& spans);
// The same for an x that nothing reads after this, taps apart. On NVIDIA GPUs the sum is then in
// the memory of x, which the result of the next norm cannot get: one kernel computes both.
ggml_tensor* add_gated_onto(Graph& g, ggml_tensor* x, ggml_tensor* branch, const ModSpans& spans);
// x + branch
ggml_tensor* add(Graph& g, ggml_tensor* x, ggml_tensor* branch);

// silu(gate) * up, appended to `before` when there is one. gate, up [n_ff, n].
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before = nullptr);

// ---- Attention ----

// FLUX.2's rope: four axes, neighbours.
Rope rope_of_axes(Graph& g, const std::array<ggml_tensor*, Rope::kMaxAxes>& axes, int64_t head_dim,
                  float theta);
// Language models': one axis.
Rope rope_of_text(Graph& g, ggml_tensor* positions, int64_t head_dim, float theta, bool halves);

// Concatenates the tokens of one or two parts after an RMS norm of every head, then rotates the
// heads (rope may be null). -> [head_dim, n_head, n], as attention takes them
ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope,
                        float eps = 1e-6f);

// -> [head_dim * n_head, n]
ggml_tensor* attention(Graph& g, const AttentionInput& in);
// The type of keys and values that are kept for it.
ggml_type kept_type(const Form& form);

// One head of any width over many tokens, in slices of queries, so that the scores stay small.
// q, k, v [width, n] -> [width, n].
ggml_tensor* sliced_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

}  // namespace flux2
