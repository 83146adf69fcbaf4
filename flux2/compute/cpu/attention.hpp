// Attention on CPUs, a few queries and keys at a time: no row of scores is ever whole, so memory
// does not grow with the square of the tokens.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// softmax(q k^T / sqrt(width) + mask) v in F32. q [width, n_head, n], k and v [width, n_head_kv,
// n_kv], each token's vector contiguous; mask [n_kv, n] or null. Query head j uses key head j /
// (n_head / n_head_kv). -> [width * n_head, n], with n_head values more in a row where it keeps
// sums (own::attention)
ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                       ggml_tensor* mask = nullptr, bool keeps_sums = false);

// x [width, n_head, n] as panels (compute/cpu/panels) of 16 tokens [16, width, n / 16, n_head] or
// of 16 channels [16, n, width / 16, n_head], rounded up.
ggml_tensor* token_panels(Graph& g, ggml_tensor* x);
ggml_tensor* channel_panels(Graph& g, ggml_tensor* x);

// The same without a mask, with queries and keys in 15 bits and weights and values in BF16; sums
// and the softmax stay in F32. Only where has_matrix_tiles() (compute/cpu/matrix_tiles).
ggml_tensor* attention_16bit(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);

// The same with a mask, queries and keys in 16 bits, as two numbers in BF16. Only where has_amx()
// (compute/cpu/amx_tiles).
ggml_tensor* attention_amx(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                           ggml_tensor* mask = nullptr);

}  // namespace flux2::cpu
