// The steps all networks are made of. Each has up to three forms, which a graph's Form chooses
// from: ggml's operations, which every device has; on CPUs some of our own (compute/cpu); on NVIDIA
// GPUs our own nodes (compute/plain/token_nodes). Shapes are ggml order, fastest first.
#pragma once

#include "compute/graph.hpp"
#include "compute/weights.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

// How a network with these weights is computed best: heads of head_dim values, tokens of `width`.
Form choose_form(const Backend& backend, const Weights& weights, int64_t head_dim, int64_t width);

// y = W x. The only door to a weight matrix. w [in, out], x [in, n] -> [out, n] in F32, or in the
// type that the graph's activations have.
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x);
ggml_tensor* linear_activations(Graph& g, ggml_tensor* w, ggml_tensor* x);

// x / rms(x) * weight over the first dimension.
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps);

// Columns [first, first + n) of x [m, N] as a view.
ggml_tensor* columns(Graph& g, ggml_tensor* x, int64_t first, int64_t n);

// ---- Modulation ----

struct Mod {
    ggml_tensor *shift, *scale, *gate;
};

// A stretch of tokens that shares one modulation.
struct ModSpan {
    int64_t n;
    Mod mod;
};
using ModSpans = std::vector<ModSpan>;  // one or two

// (1 + scale) * LN(x) + shift; LayerNorm without weights, eps 1e-6.
ggml_tensor* modulate(Graph& g, ggml_tensor* x, const ModSpans& spans);

// x + gate * branch
ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch, const ModSpans& spans);
// x + branch
ggml_tensor* add(Graph& g, ggml_tensor* x, ggml_tensor* branch);

// silu(gate) * up, behind the values of `before` when there is one. gate, up [n_ff, n].
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before = nullptr);

// ---- Attention ----

// How heads are turned by the positions of their tokens. Every axis turns its share of a head.
struct Rope {
    static constexpr int kMaxAxes = 4;
    std::array<ggml_tensor*, kMaxAxes> axis = {};  // i32 [n] each; one, or all
    float theta = 0;
    bool halves = false;           // a pair is values i and i + head_dim / 2, else neighbours
    ggml_tensor* table = nullptr;  // cosines and sines, where our own nodes want them
};
// FLUX.2's: four axes, neighbours.
Rope rope_of_axes(Graph& g, const std::array<ggml_tensor*, Rope::kMaxAxes>& axes, int64_t head_dim,
                  float theta);
// Language models': one axis.
Rope rope_of_text(Graph& g, ggml_tensor* positions, int64_t head_dim, float theta, bool halves);

struct HeadsPart {
    ggml_tensor* x;     // [head_dim, n_head, n], may be a view
    ggml_tensor* norm;  // [head_dim]; null: they stay as they are
};
// Heads of one or two stretches of tokens behind each other, RMS-normalised and turned (rope may be
// null), as attention wants them: [head_dim, n_head, n].
ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope,
                        float eps = 1e-6f);

// softmax(q k^T / sqrt(head_dim) + mask) v. Query head j uses key head j / (n_head / n_head_kv).
struct AttentionInput {
    ggml_tensor *q, *k, *v;                            // [head_dim, n_head, n]
    ggml_tensor *kept_k = nullptr, *kept_v = nullptr;  // seen by all queries too
    ggml_tensor* mask = nullptr;                       // [n_kv, n]; over ggml's operations all
                                                       // scores are then kept in memory
    // Queries from here on see only keys from here on; 0: there are no such.
    int64_t n_main = 0;
};
// -> [head_dim * n_head, n]
ggml_tensor* attention(Graph& g, const AttentionInput& in);
// The type of keys and values that are kept for it.
ggml_type kept_type(const Form& form);

// One head of any width over many tokens, in slices of queries, so that the scores stay small.
// q, k, v [width, n] -> [width, n].
ggml_tensor* sliced_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

}  // namespace flux2
