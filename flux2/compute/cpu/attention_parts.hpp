// What the two forms of attention share: the name of their node, whose sources are the queries, the
// packed keys and the packed values, and how tokens are found.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

namespace flux2::cpu {

constexpr const char* kAttentionName = "cpu attention";

// The vector of a token. x [width, n_head, n] in F32
inline const float* token(const ggml_tensor* x, int64_t head, int64_t i) {
    const size_t offset = static_cast<size_t>(head) * x->nb[1] + static_cast<size_t>(i) * x->nb[2];
    return reinterpret_cast<const float*>(static_cast<const char*>(x->data) + offset);
}

// How many keys there were before they were packed.
inline int64_t n_keys_of(const ggml_tensor* attention) {
    return attention->src[1]->src[0]->ne[2];
}

}  // namespace flux2::cpu
