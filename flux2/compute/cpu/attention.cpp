#include "compute/cpu/attention.hpp"

#include "compute/cpu/attention_parts.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

namespace flux2::cpu {
namespace {

constexpr int64_t kQueries = 40;  // of a strip

// k [width, n_head, n] -> panels of 16 keys [16, width, n / 16, n_head], rounded up
void pack_keys(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* k = dst->src[0];
    const int64_t width = k->ne[0];
    const int64_t n_panels = dst->ne[2];
    share_items(work, n_panels * dst->ne[3], nth, [&](int64_t i) {
        float* to = values(dst) + i * width * kPanel;
        for (int64_t column = 0; column < kPanel; ++column) {
            const int64_t key = i % n_panels * kPanel + column;
            const float* from = key < k->ne[2] ? token(k, i / n_panels, key) : nullptr;
            for (int64_t j = 0; j < width; ++j) {
                to[j * kPanel + column] = from != nullptr ? from[j] : 0.0f;
            }
        }
    });
}

// v [width, n_head, n] -> panels of 16 channels [16, n, width / 16, n_head], rounded up
void pack_values(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* v = dst->src[0];
    const int64_t n_panels = dst->ne[2];
    share_items(work, n_panels * dst->ne[3], nth, [&](int64_t i) {
        const int64_t first = i % n_panels * kPanel;
        const int64_t n = std::min(kPanel, v->ne[0] - first);
        float* to = values(dst) + i * dst->ne[1] * kPanel;
        for (int64_t key = 0; key < v->ne[2]; ++key, to += kPanel) {
            std::copy_n(token(v, i / n_panels, key) + first, n, to);
            std::fill(to + n, to + kPanel, 0.0f);
        }
    });
}

// The softmax of one row whose scores arrive in blocks: weights are e^(score - the highest so far),
// and what was summed up before a higher one came is scaled down.
struct Softmax {
    float highest = kLowest;
    float sum = 0;
};

template <typename F>
FLUX2_INLINE void for_panels(int64_t n, const F& f) {
    for (int64_t first = 0; first < n; first += kPanel) {
        for (int64_t i = 0; i < kPanel; ++i) {
            f(first + i, static_cast<size_t>(i));
        }
    }
}

// Turns n scores, a multiple of 16, into weights; returns the factor for everything before.
FLUX2_INLINE float weigh(Softmax* row, float* scores, int64_t n) {
    // Sixteen independent chains become vector code.
    std::array<float, kPanel> chains;
    chains.fill(row->highest);
    for_panels(n, [&](int64_t i, size_t chain) {
        chains[chain] = chains[chain] > scores[i] ? chains[chain] : scores[i];
    });
    const float before = row->highest;
    const float highest = *std::max_element(chains.begin(), chains.end());
    chains.fill(0);
    for_panels(n, [&](int64_t i, size_t chain) {
        scores[i] = exp_of(scores[i] - highest);
        chains[chain] += scores[i];
    });
    const float factor = exp_of(before - highest);
    row->highest = highest;
    row->sum = std::accumulate(chains.begin(), chains.end(), row->sum * factor);
    return factor;
}

void scale_row(float* row, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i) {
        row[i] *= factor;
    }
}

// Some queries of one head, over all keys.
class Strip : AttentionStrip {
  public:
    explicit Strip(ggml_tensor* dst)
        : AttentionStrip(dst),
          keeps_sums_(params_of<own::AttentionParams>(dst).keeps_sums),
          width_(v_->ne[2] * kPanel),
          scores_(scratch(kQueries * kKeys)),
          sums_(scratch(kQueries * width_)) {}

    // Queries [first, first + n) of a head.
    void run(int64_t head, int64_t first, int64_t n) {
        std::array<Softmax, kQueries> rows;
        const int64_t n_seen = count_seen(first, n, kPanel);
        for (int64_t key = 0; key < n_seen; key += kKeys) {
            const int64_t n_keys = std::min(kKeys, n_seen - key);
            score(head, first, n, key, n_keys);
            add_values(head, n, key, n_keys, rows);
        }
        const int64_t width = q_->ne[0];
        for (int64_t i = 0; i < n; ++i) {
            const Softmax& row = rows[static_cast<size_t>(i)];
            float* sums = sums_.get() + i * width_;
            float* to = values(dst_) + (first + i) * dst_->ne[0];
            scale_row(sums, width, 1 / row.sum);
            std::copy_n(sums, width, to + head * width);
            if (keeps_sums_) {
                to[width * q_->ne[1] + head] = row.highest + std::log(row.sum);
            }
        }
    }

  private:
    // Scores of a block of keys. Beyond the last key, up to a whole panel, they are the lowest.
    void score(int64_t head, int64_t first, int64_t n, int64_t key, int64_t n_keys) {
        const int64_t width = q_->ne[0];
        const int64_t n_scores = round_up(n_keys, kPanel);
        multiply({.a = token(q_, head, first),
                  .a_stride = static_cast<int64_t>(q_->nb[2] / sizeof(float)),
                  .n_rows = n,
                  .n_inner = width,
                  .b = panels<float>(k_, head) + key * width,
                  .b_stride = width * kPanel,
                  .n_panels = n_scores / kPanel,
                  .c = scores_.get(),
                  .c_stride = kKeys});
        const float factor = 1 / std::sqrt(static_cast<float>(width));
        for (int64_t i = 0; i < n; ++i) {
            float* row = scores_.get() + i * kKeys;
            scale_row(row, n_keys, factor);
            if (mask_ != nullptr) {
                const float* mask = values(mask_) + (first + i) * n_keys_ + key;
                std::transform(row, row + n_keys, mask, row, std::plus<>());
            }
            std::fill(row + n_keys, row + n_scores, kLowest);
        }
    }

    // Turns the scores into weights and adds the values so weighted.
    void add_values(int64_t head, int64_t n, int64_t key, int64_t n_keys,
                    std::array<Softmax, kQueries>& rows) {
        for (int64_t i = 0; i < n; ++i) {
            const float factor = call_best<weigh>(
                &rows[static_cast<size_t>(i)], scores_.get() + i * kKeys, round_up(n_keys, kPanel));
            if (key > 0) {
                scale_row(sums_.get() + i * width_, width_, factor);
            }
        }
        multiply({.a = scores_.get(),
                  .a_stride = kKeys,
                  .n_rows = n,
                  .n_inner = n_keys,
                  .b = panels<float>(v_, head) + key * kPanel,
                  .b_stride = n_keys_ * kPanel,
                  .n_panels = v_->ne[2],
                  .c = sums_.get(),
                  .c_stride = width_,
                  .adds = key > 0});
    }

    bool keeps_sums_;
    int64_t width_;  // rounded up to panels
    std::unique_ptr<float[]> scores_, sums_;
};

void attend(ggml_tensor* dst, int, int nth, void* work) {
    run_strips<Strip>(dst, kQueries, nth, work);
}

const OwnOperation kPackKeys = {"cpu pack keys", pack_keys};
const OwnOperation kPackValues = {"cpu pack values", pack_values};

}  // namespace

ggml_tensor* token_panels(Graph& g, ggml_tensor* x) {
    const int64_t n_panels = round_up(x->ne[2], kPanel) / kPanel;
    return own_node(g, {kPackKeys, {}, {kPanel, x->ne[0], n_panels, x->ne[1]}}, {x});
}

ggml_tensor* channel_panels(Graph& g, ggml_tensor* x) {
    const int64_t n_panels = round_up(x->ne[0], kPanel) / kPanel;
    return own_node(g, {kPackValues, {}, {kPanel, x->ne[2], n_panels, x->ne[1]}}, {x});
}

ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask,
                       bool keeps_sums) {
    return own::attention(g, {.q = q, .k = k, .v = v, .mask = mask}, {.function = attend},
                          {token_panels(g, k), channel_panels(g, v)}, keeps_sums);
}

}  // namespace flux2::cpu
