// What the forms of attention share: how tokens and panels are found, and how threads share the
// work.
#pragma once

#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kKeys = 512;     // of a block
constexpr float kLowest = -1e30f;  // the score of what is not seen

// The vector of a token. x [width, n_head, n] in F32
inline const float* token(const ggml_tensor* x, int64_t head, int64_t i) {
    const size_t offset = static_cast<size_t>(head) * x->nb[1] + static_cast<size_t>(i) * x->nb[2];
    return reinterpret_cast<const float*>(static_cast<const char*>(x->data) + offset);
}

// Whether a row of the mask leaves one of the keys [first, end).
inline bool sees_some(const float* mask, int64_t first, int64_t end) {
    float highest = kLowest;
    for (int64_t i = first; i < end; ++i) {
        highest = highest > mask[i] ? highest : mask[i];
    }
    return highest > kLowest;
}

// What a strip of queries reads and writes.
class AttentionStrip {
  protected:
    explicit AttentionStrip(ggml_tensor* dst)
        : dst_(dst),
          q_(dst->src[0]),
          k_(dst->src[1]),
          v_(dst->src[2]),
          mask_(dst->src[3]),
          n_keys_(params_of<own::AttentionParams>(dst).n_keys) {}

    // The panels of a query head's key head, of k or v.
    template <typename Value>
    const Value* panels(const ggml_tensor* x, int64_t head) const {
        const int64_t head_kv = head / (q_->ne[1] / x->ne[3]);
        return static_cast<const Value*>(x->data) + head_kv * x->ne[0] * x->ne[1] * x->ne[2];
    }

    // Keys up to the last one that one of the queries sees: a causal mask, or one that hides
    // padding, makes the rest needless. Looks at
    // `step` of them at a time.
    int64_t count_seen(int64_t first, int64_t n, int64_t step) const {
        if (mask_ == nullptr) {
            return n_keys_;
        }
        int64_t seen = 1;
        for (int64_t i = first; i < first + n; ++i) {
            const float* mask = static_cast<const float*>(mask_->data) + i * n_keys_;
            for (int64_t key = n_keys_; key > seen; key -= std::min(step, key)) {
                seen = sees_some(mask, std::max<int64_t>(key - step, 0), key) ? key : seen;
            }
        }
        return seen;
    }

    ggml_tensor* dst_;
    const ggml_tensor* q_;     // [width, n_head, n]
    const ggml_tensor* k_;     // panels
    const ggml_tensor* v_;     // panels
    const ggml_tensor* mask_;  // may be null
    int64_t n_keys_;
};

// What one thread takes of a node's work: strips of n_queries queries of a head, by
// Strip::run(head, first query, their number).
template <typename Strip>
void run_strips(ggml_tensor* dst, int64_t n_queries, int nth, void* work) {
    const int64_t n_heads = dst->src[0]->ne[1];
    const int64_t n = dst->ne[1];
    const int64_t n_strips = (n + n_queries - 1) / n_queries;
    Strip strip(dst);
    // In pieces neighbouring strips of a head share its keys and values in the cache.
    share_items(work, n_heads * n_strips, nth, [&](int64_t i) {
        const int64_t first = i % n_strips * n_queries;
        strip.run(i / n_strips, first, std::min(n_queries, n - first));
    });
}

}  // namespace flux2::cpu
