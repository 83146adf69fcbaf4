// The steps all networks are made of, over ggml's ops. Shapes are ggml order, fastest first.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <vector>

namespace flux2 {

// y = W x. The only door to a weight matrix. w [in, out], x [in, n] -> [out, n].
ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x);

// x / rms(x) * weight over the first dimension; eps 1e-6.
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps = 1e-6f);

// Columns [first, first + n) of x [m, N] as a view.
ggml_tensor* columns(Graph& g, ggml_tensor* x, int64_t first, int64_t n);

// Rows of 4 position ids per token, one i32 tensor [n] per axis.
struct Positions {
    static constexpr int kAxes = 4;
    std::array<ggml_tensor*, kAxes> axis;
};

// FLUX.2's position encoding: each axis turns a quarter of the head in interleaved pairs.
// x [head_dim, n_head, n] -> the same shape.
ggml_tensor* rope_axes(Graph& g, ggml_tensor* x, const Positions& pos, float theta);

// softmax(q k^T / sqrt(head_dim)) v without mask. q [head_dim, n_head, n], k and v
// [head_dim, n_head, n_kv] -> [head_dim * n_head, n].
ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

// The same with a mask [n_kv, n] that is added to the scores, and fewer key heads than query heads:
// query head j uses key head j / (n_head / n_head_kv). Over ggml's operations it keeps all scores
// in memory.
ggml_tensor* masked_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                              ggml_tensor* mask);

// One head of any width over many tokens, in slices of queries, so that the scores stay small.
// q, k, v [width, n] -> [width, n].
ggml_tensor* sliced_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

}  // namespace flux2
