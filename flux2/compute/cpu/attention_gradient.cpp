// The gradients of attention on CPUs: weights are computed once more from the logarithms of their
// sums, a strip of queries (or of keys) at a time, so that memory does not grow with the square of
// the tokens and no two threads add to the same values.

#include "compute/cpu/attention.hpp"
#include "compute/cpu/attention_parts.hpp"
#include "compute/cpu/gradient_ops.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/sums.hpp"
#include "compute/cpu/values.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace flux2::cpu {
namespace {

constexpr int64_t kStrip = 40;   // queries or keys
constexpr int64_t kBlock = 512;  // of the others at a time

const float* row_at(const ggml_tensor* x, int64_t i) {
    return values(x) + i * static_cast<int64_t>(x->nb[1] / sizeof(float));
}

FLUX2_INLINE float dot_of(const float* a, const float* b, int64_t n) {
    return sum_over(n, [=](int64_t i) { return a[i] * b[i]; });
}

// Scores of a query and products of its gradient with values -> weights and d_scores, in place.
FLUX2_INLINE void weigh_keys(float* scores, float* products, int64_t n, float factor, float log_sum,
                             float inner) {
    for (int64_t i = 0; i < n; ++i) {
        const float weight = exp_of(scores[i] * factor - log_sum);
        scores[i] = weight;
        products[i] = weight * (products[i] - inner) * factor;
    }
}

// The same for a key and the queries that see it.
FLUX2_INLINE void weigh_queries(float* scores, float* products, int64_t n, float factor,
                                const float* log_sums, const float* inners) {
    for (int64_t i = 0; i < n; ++i) {
        const float weight = exp_of(scores[i] * factor - log_sums[i]);
        scores[i] = weight;
        products[i] = weight * (products[i] - inners[i]) * factor;
    }
}

// What both strips work with. A gradient has the memory layout [head_dim * n_head, n].
class GradientStrip {
  protected:
    GradientStrip(ggml_tensor* dst, int64_t head_dim, int64_t n_heads)
        : dst_(dst),
          kept_(dst->src[3]),
          d_(dst->src[4]),
          head_dim_(head_dim),
          n_heads_(n_heads),
          width_(round_up(head_dim, kPanel)),
          factor_(1 / std::sqrt(static_cast<float>(head_dim))),
          scores_(scratch(kStrip * kBlock)),
          products_(scratch(kStrip * kBlock)) {}

    const float* panels(const ggml_tensor* x, int64_t head) const {
        return values(x) + head * x->ne[0] * x->ne[1] * x->ne[2];
    }
    const float* gradient(int64_t head, int64_t query) const {
        return row_at(d_, query) + head * head_dim_;
    }
    float log_sum(int64_t head, int64_t query) const {
        return row_at(kept_, query)[n_heads_ * head_dim_ + head];
    }
    float inner(int64_t head, int64_t query) const {
        return call_best<dot_of>(gradient(head, query), row_at(kept_, query) + head * head_dim_,
                                 head_dim_);
    }

    // to [n, kBlock] = rows times the panels of tokens [first, first + n_tokens).
    void multiply_tokens(const float* rows, int64_t stride, int64_t n, const float* packed,
                         int64_t first, int64_t n_tokens, float* to) const {
        multiply({.a = rows,
                  .a_stride = stride,
                  .n_rows = n,
                  .n_inner = head_dim_,
                  .b = packed + first * head_dim_,
                  .b_stride = head_dim_ * kPanel,
                  .n_panels = round_up(n_tokens, kPanel) / kPanel,
                  .c = to,
                  .c_stride = kBlock});
    }
    // sums [n, width_] += rows [n, kBlock] times the channels of these tokens.
    void add_channels(const float* rows, int64_t n, const float* packed, int64_t first,
                      int64_t n_tokens, float* sums) const {
        const int64_t n_all = d_->ne[1];
        multiply({.a = rows,
                  .a_stride = kBlock,
                  .n_rows = n,
                  .n_inner = n_tokens,
                  .b = packed + first * kPanel,
                  .b_stride = n_all * kPanel,
                  .n_panels = width_ / kPanel,
                  .c = sums,
                  .c_stride = width_,
                  .adds = first > 0});
    }
    // The first head_dim_ values of each row of sums, to the result's rows.
    void put(const float* sums, int64_t first, int64_t n, int64_t column) const {
        for (int64_t i = 0; i < n; ++i) {
            std::copy_n(sums + i * width_, head_dim_,
                        values(dst_) + (first + i) * dst_->ne[0] + column);
        }
    }

    ggml_tensor* dst_;
    const ggml_tensor *kept_, *d_;
    int64_t head_dim_, n_heads_;
    int64_t width_;  // of a head, rounded up to panels
    float factor_;
    std::unique_ptr<float[]> scores_, products_;
};

class QueryStrip : GradientStrip {
  public:
    explicit QueryStrip(ggml_tensor* dst)
        : GradientStrip(dst, dst->src[0]->ne[0], dst->src[0]->ne[1]),
          q_(dst->src[0]),
          k_(dst->src[1]),
          v_(dst->src[2]),
          k_channels_(dst->src[5]),
          sums_(scratch(kStrip * width_)) {}

    void run(int64_t head, int64_t first, int64_t n) {
        const int64_t n_keys = d_->ne[1];
        for (int64_t key = 0; key < n_keys; key += kBlock) {
            const int64_t count = std::min(kBlock, n_keys - key);
            multiply_tokens(token(q_, head, first), static_cast<int64_t>(q_->nb[2] / sizeof(float)),
                            n, panels(k_, head), key, count, scores_.get());
            multiply_tokens(gradient(head, first), static_cast<int64_t>(d_->nb[1] / sizeof(float)),
                            n, panels(v_, head), key, count, products_.get());
            for (int64_t i = 0; i < n; ++i) {
                call_best<weigh_keys>(scores_.get() + i * kBlock, products_.get() + i * kBlock,
                                      count, factor_, log_sum(head, first + i),
                                      inner(head, first + i));
            }
            add_channels(products_.get(), n, panels(k_channels_, head), key, count, sums_.get());
        }
        put(sums_.get(), first, n, head * head_dim_);
    }

  private:
    const ggml_tensor *q_, *k_, *v_, *k_channels_;
    std::unique_ptr<float[]> sums_;
};

class KeyStrip : GradientStrip {
  public:
    explicit KeyStrip(ggml_tensor* dst)
        : GradientStrip(dst, dst->src[1]->ne[0], dst->src[1]->ne[1]),
          q_(dst->src[0]),
          k_(dst->src[1]),
          v_(dst->src[2]),
          d_panels_(dst->src[5]),
          q_channels_(dst->src[6]),
          d_channels_(dst->src[7]),
          dk_(scratch(kStrip * width_)),
          dv_(scratch(kStrip * width_)),
          log_sums_(scratch(d_->ne[1])),
          inners_(scratch(d_->ne[1])) {}

    void run(int64_t head, int64_t first, int64_t n) {
        enter(head);
        const int64_t n_queries = d_->ne[1];
        for (int64_t query = 0; query < n_queries; query += kBlock) {
            const int64_t count = std::min(kBlock, n_queries - query);
            multiply_tokens(token(k_, head, first), static_cast<int64_t>(k_->nb[2] / sizeof(float)),
                            n, panels(q_, head), query, count, scores_.get());
            multiply_tokens(token(v_, head, first), static_cast<int64_t>(v_->nb[2] / sizeof(float)),
                            n, panels(d_panels_, head), query, count, products_.get());
            for (int64_t i = 0; i < n; ++i) {
                call_best<weigh_queries>(scores_.get() + i * kBlock, products_.get() + i * kBlock,
                                         count, factor_,
                                         static_cast<const float*>(log_sums_.get() + query),
                                         static_cast<const float*>(inners_.get() + query));
            }
            add_channels(products_.get(), n, panels(q_channels_, head), query, count, dk_.get());
            add_channels(scores_.get(), n, panels(d_channels_, head), query, count, dv_.get());
        }
        put(dk_.get(), first, n, head * head_dim_);
        put(dv_.get(), first, n, (n_heads_ + head) * head_dim_);
    }

  private:
    // What all keys of a head need.
    void enter(int64_t head) {
        if (head == entered_) {
            return;
        }
        for (int64_t i = 0; i < d_->ne[1]; ++i) {
            log_sums_[static_cast<size_t>(i)] = log_sum(head, i);
            inners_[static_cast<size_t>(i)] = inner(head, i);
        }
        entered_ = head;
    }

    const ggml_tensor *q_, *k_, *v_, *d_panels_, *q_channels_, *d_channels_;
    std::unique_ptr<float[]> dk_, dv_, log_sums_, inners_;
    int64_t entered_ = -1;
};

template <typename Strip>
void run_strips_of(ggml_tensor* dst, int64_t n_heads, int nth, void* work) {
    const int64_t n = dst->ne[1];
    const int64_t n_strips = (n + kStrip - 1) / kStrip;
    Strip strip(dst);
    share_items(work, n_heads * n_strips, nth, [&](int64_t i) {
        const int64_t first = i % n_strips * kStrip;
        strip.run(i / n_strips, first, std::min(kStrip, n - first));
    });
}

void run_query_gradient(ggml_tensor* dst, int, int nth, void* work) {
    run_strips_of<QueryStrip>(dst, dst->src[0]->ne[1], nth, work);
}

void run_key_gradient(ggml_tensor* dst, int, int nth, void* work) {
    run_strips_of<KeyStrip>(dst, dst->src[1]->ne[1], nth, work);
}

// d [head_dim * n_head, n] as [head_dim, n_head, n].
ggml_tensor* as_heads(Graph& g, const own::AttentionGradientInput& in) {
    const ggml_tensor* d = in.d;
    return ggml_view_3d(g, in.d, in.q->ne[0], in.q->ne[1], d->ne[1],
                        static_cast<size_t>(in.q->ne[0]) * sizeof(float), d->nb[1], 0);
}

}  // namespace

ggml_tensor* query_gradient(Graph& g, const own::AttentionGradientInput& in) {
    return own::query_gradient(g, in, {.function = run_query_gradient},
                               {.k = token_panels(g, in.k),
                                .v = token_panels(g, in.v),
                                .k_channels = channel_panels(g, in.k)});
}

ggml_tensor* key_gradient(Graph& g, const own::AttentionGradientInput& in) {
    ggml_tensor* d = as_heads(g, in);
    return own::key_gradient(g, in, {.function = run_key_gradient},
                             {.q = token_panels(g, in.q),
                              .d = token_panels(g, d),
                              .q_channels = channel_panels(g, in.q),
                              .d_channels = channel_panels(g, d)});
}

}  // namespace flux2::cpu
