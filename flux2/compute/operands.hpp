// What operations on tokens take beside single tensors: given by models, read by every form. Shapes
// are ggml order, fastest first.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <vector>

namespace flux2 {

struct Mod {
    ggml_tensor *shift, *scale, *gate;
};

// The next n tokens share one modulation.
struct ModSpan {
    int64_t n;
    Mod mod;
};
using ModSpans = std::vector<ModSpan>;  // one or two

// How heads are rotated by the positions of their tokens. Every axis rotates its share of a head.
struct Rope {
    static constexpr int kMaxAxes = 4;
    std::array<ggml_tensor*, kMaxAxes> axis = {};  // i32 [n] each; one, or all
    float theta = 0;
    bool halves = false;           // a pair is values i and i + head_dim / 2, else neighbours
    ggml_tensor* table = nullptr;  // cosines and sines, where our own nodes want them
};

// The heads of some tokens.
struct HeadsPart {
    ggml_tensor* x;     // [head_dim, n_head, n], may be a view
    ggml_tensor* norm;  // [head_dim]; null: they stay as they are
};

// softmax(q k^T / sqrt(head_dim) + mask) v. Query head j uses key head j / (n_head / n_head_kv).
struct AttentionInput {
    ggml_tensor *q, *k, *v;                            // [head_dim, n_head, n]
    ggml_tensor *kept_k = nullptr, *kept_v = nullptr;  // seen by all queries too
    ggml_tensor* mask = nullptr;                       // [n_kv, n]; over ggml's operations all
                                                       // scores are then kept in memory
    // Queries from here on see only keys from here on; 0: there are no such.
    int64_t n_main = 0;
};

}  // namespace flux2
