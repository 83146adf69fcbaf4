#include "compute/cpu/amx_convert.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/attention.hpp"
#include "compute/cpu/attention_parts.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace flux2::cpu {
namespace {

constexpr int64_t kQueries = 2 * kAmxRows;  // of a strip
constexpr int64_t kKeyBlock = 256;          // keys whose scores are in the first cache
constexpr int64_t kPair = 2 * kAmxColumns;  // columns of a product
static_assert(kPair == kAmxInner);          // so keys fill up to the same number twice

// k [width, n_head, n] -> panels of 16 keys [512, 2 * width / 32, n / 16, n_head], rounded up: the
// tiles of their first parts, then of their second ones
void pack_keys(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* k = dst->src[0];
    const int64_t n_panels = dst->ne[2];
    const int64_t size = dst->ne[0] * dst->ne[1];
    share_items(work, n_panels * dst->ne[3], nth, [&](int64_t i) {
        uint16_t* to = static_cast<uint16_t*>(dst->data) + i * size;
        const int64_t first = i % n_panels * kAmxColumns;
        const int64_t n = std::clamp<int64_t>(k->ne[2] - first, 0, kAmxColumns);
        if (n < kAmxColumns) {
            std::fill_n(to, size, uint16_t{0});
        }
        for (int64_t j = 0; j < n; ++j) {
            split_amx_column(token(k, i / n_panels, first + j), k->ne[0], j, to, to + size / 2);
        }
    });
}

// v [width, n_head, n] -> panels of 16 channels [512, n / 32, width / 16, n_head], rounded up
void pack_values(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* v = dst->src[0];
    const int64_t n_tiles = dst->ne[1];
    const int64_t n_panels = dst->ne[2];
    std::array<const float*, kAmxInner> rows;
    share_items(work, n_tiles * dst->ne[3], nth, [&](int64_t i) {
        const int64_t head = i / n_tiles;
        const int64_t tile = i % n_tiles;
        for (int64_t panel = 0; panel < n_panels; ++panel) {
            const int64_t channel = panel * kAmxColumns;
            for (int64_t j = 0; j < kAmxInner; ++j) {
                const int64_t key = tile * kAmxInner + j;
                const bool is_there = key < v->ne[2] && channel < v->ne[0];
                rows[static_cast<size_t>(j)] = is_there ? token(v, head, key) + channel : nullptr;
            }
            uint16_t* to = static_cast<uint16_t*>(dst->data) +
                           ((head * n_panels + panel) * n_tiles + tile) * kAmxTileSize;
            make_amx_values(rows.data(), std::min(kAmxColumns, v->ne[0] - channel), to);
        }
    });
}

// Some queries of one head, over all keys.
class Strip : AttentionStrip {
  public:
    explicit Strip(ggml_tensor* dst)
        : AttentionStrip(dst),
          n_tiles_(k_->ne[1] / 2),
          width_(v_->ne[2] * kAmxColumns),
          queries_(aligned_scratch<uint16_t>(query_values())),
          scores_(aligned_scratch<float>(kQueries * kKeyBlock)),
          weights_(aligned_scratch<uint16_t>(kQueries * kKeyBlock)),
          sums_(aligned_scratch<float>(kQueries * width_)) {}

    // Queries [first, first + n) of a head.
    void run(int64_t head, int64_t first, int64_t n) {
        pack_queries(head, first, n);
        softmax_.fill({});
        const int64_t n_seen = count_seen(first, n, kAmxColumns);
        for (int64_t key = 0; key < n_seen; key += kKeyBlock) {
            const int64_t n_keys = std::min(kKeyBlock, n_seen - key);
            score(head, key, n_keys);
            weigh(first, n, key, n_keys);
            add_values(head, key, n_keys);
        }
        const int64_t width = q_->ne[0];
        for (int64_t i = 0; i < n; ++i) {
            const float factor = 1 / softmax_[static_cast<size_t>(i)].sum;
            const float* sums = sums_.get() + i * width_;
            float* to = values(dst_) + (first + i) * dst_->ne[0] + head * width;
            std::transform(sums, sums + width, to, [=](float x) { return x * factor; });
        }
    }

  private:
    int64_t query_values() const { return 2 * kQueries * n_tiles_ * kAmxInner; }

    void pack_queries(int64_t head, int64_t first, int64_t n) {
        if (n < kQueries) {
            std::fill_n(queries_.get(), query_values(), uint16_t{0});
        }
        const int64_t part = n_tiles_ * kAmxTileSize;
        for (int64_t i = 0; i < n; ++i) {
            uint16_t* tiles = queries_.get() + i / kAmxRows * 2 * part;
            split_amx_row(token(q_, head, first + i), q_->ne[0], i % kAmxRows, tiles, tiles + part);
        }
    }

    // Scores of a block of keys, up to a whole pair of panels.
    void score(int64_t head, int64_t key, int64_t n_keys) {
        const int64_t part = n_tiles_ * kAmxTileSize;
        for (int64_t i = 0; i < n_keys; i += kPair) {
            multiply_split(
                {.rows = queries_.get(),
                 .rows_distance = 2 * part,
                 .columns = panels<uint16_t>(k_, head) + (key + i) / kAmxColumns * 2 * part,
                 .columns_distance = 2 * part,
                 .n_tiles = n_tiles_,
                 .results = scores_.get() + i,
                 .stride = kKeyBlock,
                 .adds = false});
        }
    }

    // Turns the scores into weights and scales down what was summed up before.
    void weigh(int64_t first, int64_t n, int64_t key, int64_t n_keys) {
        const float scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(q_->ne[0]));
        const int64_t n_scores = round_up(n_keys, kPair);
        for (int64_t i = 0; i < kQueries; ++i) {
            // Rows that are no queries have scores of zero.
            const float* mask =
                mask_ != nullptr && i < n ? values(mask_) + (first + i) * n_keys_ + key : nullptr;
            const float factor = softmax_[static_cast<size_t>(i)].add(
                scores_.get() + i * kKeyBlock, n_scores, n_keys, scale, mask, i % kAmxRows,
                weights_.get() + i / kAmxRows * kAmxRows * kKeyBlock);
            if (key > 0 && factor != 1) {
                float* sums = sums_.get() + i * width_;
                std::transform(sums, sums + width_, sums, [=](float x) { return x * factor; });
            }
        }
    }

    void add_values(int64_t head, int64_t key, int64_t n_keys) {
        const int64_t panel = v_->ne[1] * kAmxTileSize;
        for (int64_t channel = 0; channel < width_; channel += kPair) {
            multiply({.rows = weights_.get(),
                      .rows_distance = kAmxRows * kKeyBlock,
                      .columns = panels<uint16_t>(v_, head) + channel / kAmxColumns * panel +
                                 key / kAmxInner * kAmxTileSize,
                      .columns_distance = panel,
                      .n_tiles = round_up(n_keys, kAmxInner) / kAmxInner,
                      .results = sums_.get() + channel,
                      .stride = width_,
                      .adds = key > 0});
        }
    }

    int64_t n_tiles_;                   // of a query, of each of its parts
    int64_t width_;                     // rounded up to pairs of panels
    AlignedScratch<uint16_t> queries_;  // two runs of tiles
    AlignedScratch<float> scores_;
    AlignedScratch<uint16_t> weights_;  // two runs of tiles
    AlignedScratch<float> sums_;
    std::array<AmxSoftmax, kQueries> softmax_;
};

void attend(ggml_tensor* dst, int, int nth, void* work) {
    const AmxThread thread;
    run_strips<Strip>(dst, kQueries, nth, work);
}

const OwnOperation kPackKeys = {"cpu pack keys", pack_keys};
const OwnOperation kPackValues = {"cpu pack values", pack_values};

}  // namespace

ggml_tensor* attention_amx(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                           ggml_tensor* mask) {
    const int64_t n_keys = round_up(k->ne[2], kPair);
    const int64_t key_tiles = round_up(k->ne[0], kAmxInner) / kAmxInner;
    const int64_t value_panels = round_up(v->ne[0], kPair) / kAmxColumns;
    const auto pack = [&](const OwnOperation& operation, ggml_tensor* x, int64_t n_tiles,
                          int64_t n_panels) {
        return own_node(
            g, {operation, {GGML_TYPE_BF16}, {kAmxTileSize, n_tiles, n_panels, x->ne[1]}}, {x});
    };
    const own::PackedKeys packed = {pack(kPackKeys, k, 2 * key_tiles, n_keys / kAmxColumns),
                                    pack(kPackValues, v, n_keys / kAmxInner, value_panels)};
    return own::attention(g, {.q = q, .k = k, .v = v, .mask = mask}, {.function = attend}, packed);
}

}  // namespace flux2::cpu
