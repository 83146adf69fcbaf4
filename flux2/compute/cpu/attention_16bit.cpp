#include "compute/cpu/attention.hpp"
#include "compute/cpu/attention_parts.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

namespace flux2::cpu {
namespace {

constexpr int64_t kTiles = 4;  // of a strip of queries
constexpr int64_t kQueries = kTiles * kTileRows;
constexpr int64_t kScaleBytes = static_cast<int64_t>(sizeof(float));

void split_group(const float* from, int64_t n, float steps, int8_t* high, int8_t* low) {
    for (int64_t i = 0; i < n; ++i) {
        const Split value = split(from[i] * steps);
        high[i] = value.high;
        low[i] = value.low;
    }
}

// Writes a vector in 15 bits into its row or column of a tile or panel [2][width / 8][n_across][8],
// which begins at `to` and holds zeros where the vector does not reach. Returns the size of a step.
float pack_split(const float* from, int64_t width, int64_t n_across, int8_t* to) {
    float most = 0;
    for (int64_t i = 0; i < width; ++i) {
        most = std::max(most, std::abs(from[i]));
    }
    constexpr auto kMost = static_cast<float>(Split::kMost);
    const float steps = most > 0 ? kMost / most : 0.0f;
    int8_t* low = to + round_up(width, kGroup) * n_across;
    int64_t i = 0;
    for (; i + kGroup <= width; i += kGroup) {
        split_group(from + i, kGroup, steps, to + i * n_across, low + i * n_across);
    }
    split_group(from + i, width - i, steps, to + i * n_across, low + i * n_across);
    return most / kMost;
}

// k [width, n_head, n] -> panels of 8 keys with their scales [8, 2 * width + 4, n / 8, n_head],
// rounded up
void pack_keys(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* k = dst->src[0];
    const int64_t n_panels = dst->ne[2];
    const int64_t size = dst->ne[1] * kTileColumns;
    share_items(work, n_panels * dst->ne[3], nth, [&](int64_t i) {
        const int64_t first = i % n_panels * kTileColumns;
        const int64_t n = std::min(kTileColumns, k->ne[2] - first);
        int8_t* to = static_cast<int8_t*>(dst->data) + i * size;
        std::fill_n(to, size, int8_t{0});
        for (int64_t j = 0; j < n; ++j) {
            const float step = pack_split(token(k, i / n_panels, first + j), k->ne[0], kTileColumns,
                                          to + j * kGroup);
            std::memcpy(to + size - (kTileColumns - j) * kScaleBytes, &step, sizeof(step));
        }
    });
}

// v [width, n_head, n] -> panels of 8 channels [8, n, width / 8, n_head], rounded up. The keys of a
// group come in the order in which SoftmaxTile leaves their weights.
void pack_values(ggml_tensor* dst, int, int nth, void* work) {
    constexpr std::array<int64_t, kBf16Group> kOrder = {0, 2, 1, 3};
    const ggml_tensor* v = dst->src[0];
    const int64_t n_panels = dst->ne[2];
    const int64_t n_keys = dst->ne[1];
    share_items(work, n_panels * dst->ne[3], nth, [&](int64_t i) {
        const int64_t first = i % n_panels * kTileColumns;
        const int64_t n = std::min(kTileColumns, v->ne[0] - first);
        uint16_t* to = static_cast<uint16_t*>(dst->data) + i * n_keys * kTileColumns;
        std::fill_n(to, n_keys * kTileColumns, uint16_t{0});
        for (int64_t place = 0; place < n_keys; ++place) {
            const int64_t j = place % kBf16Group;
            const int64_t key = place - j + kOrder[static_cast<size_t>(j)];
            if (key >= v->ne[2]) {
                continue;
            }
            const float* from = token(v, i / n_panels, key) + first;
            uint16_t* group = to + (place - j) * kTileColumns + j;
            for (int64_t channel = 0; channel < n; ++channel) {
                group[channel * kBf16Group] = to_bf16(from[channel]);
            }
        }
    });
}

// Some queries of one head, over all keys.
class Strip : AttentionStrip {
  public:
    explicit Strip(ggml_tensor* dst)
        : AttentionStrip(dst),
          inner_(round_up(q_->ne[0], kGroup)),
          queries_(static_cast<size_t>(kQueries * 2 * inner_)),
          scores_(scratch(kQueries * kKeys)),
          weights_(static_cast<size_t>(kQueries * kKeys)),
          sums_(scratch(kQueries * v_->ne[2] * kTileColumns)) {}

    // Queries [first, first + n) of a head.
    void run(int64_t head, int64_t first, int64_t n) {
        n_tiles_ = (n + kTileRows - 1) / kTileRows;
        pack_queries(head, first, n);
        for (int64_t key = 0; key < n_keys_; key += kKeys) {
            const int64_t n_keys = std::min(kKeys, n_keys_ - key);
            score(head, key, n_keys);
            add_values(head, key, n_keys);
        }
        for (int64_t i = 0; i < n; ++i) {
            write(i, values(dst_) + (first + i) * dst_->ne[0] + head * q_->ne[0]);
        }
    }

  private:
    SoftmaxTile& softmax_of(int64_t row) { return softmax_[static_cast<size_t>(row / kTileRows)]; }

    void pack_queries(int64_t head, int64_t first, int64_t n) {
        const int64_t width = q_->ne[0];
        const float factor = static_cast<float>(Split::kHigh) * std::numbers::log2e_v<float> /
                             std::sqrt(static_cast<float>(width));
        std::fill(queries_.begin(), queries_.end(), int8_t{0});
        softmax_.fill({});
        for (int64_t i = 0; i < n; ++i) {
            int8_t* tile = queries_.data() + i / kTileRows * kTileRows * 2 * inner_;
            const float step = pack_split(token(q_, head, first + i), width, kTileRows,
                                          tile + i % kTileRows * kGroup);
            softmax_of(i).scale[static_cast<size_t>(i % kTileRows)] = step * factor;
        }
    }

    // Scores of a block of keys. Beyond the last key, up to a whole panel, they are the lowest.
    void score(int64_t head, int64_t key, int64_t n_keys) {
        const int64_t n_panels = round_up(n_keys, kTileColumns) / kTileColumns;
        multiply(ScoreTiles{.rows = queries_.data(),
                            .n_tiles = n_tiles_,
                            .n_inner = inner_,
                            .columns = panels<int8_t>(k_, head) + key * k_->ne[1],
                            .panel_bytes = k_->ne[1] * kTileColumns,
                            .n_panels = n_panels,
                            .results = scores_.get()});
        for (int64_t i = n_keys; i < n_panels * kTileColumns; ++i) {
            for (int64_t row = 0; row < n_tiles_ * kTileRows; ++row) {
                const int64_t tile = row / kTileRows * n_panels + n_panels - 1;
                const int64_t place = tile_place(row % kTileRows, i % kTileColumns);
                scores_[static_cast<size_t>(tile * kTileSize + place)] = kLowest;
            }
        }
    }

    // Turns the scores into weights and adds the values so weighted.
    void add_values(int64_t head, int64_t key, int64_t n_keys) {
        const int64_t n_panels = round_up(n_keys, kTileColumns) / kTileColumns;
        std::array<float, kQueries> factors;
        for (int64_t row = 0; row < n_tiles_ * kTileRows; row += kTileRows) {
            const int64_t at = row * n_panels * kTileColumns;
            softmax_of(row).add(scores_.get() + at, n_panels, weights_.data() + at,
                                factors.data() + row);
        }
        multiply(ValueTiles{.rows = weights_.data(),
                            .n_tiles = n_tiles_,
                            .n_inner = n_panels * kTileColumns,
                            .columns = panels<uint16_t>(v_, head) + key * kTileColumns,
                            .panel_size = v_->ne[1] * kTileColumns,
                            .n_panels = v_->ne[2],
                            .results = sums_.get(),
                            .factors = key > 0 ? factors.data() : nullptr});
    }

    // The result of query i of the strip.
    void write(int64_t i, float* to) {
        const float factor = 1 / softmax_of(i).sum[static_cast<size_t>(i % kTileRows)];
        const float* sums = sums_.get() + i / kTileRows * v_->ne[2] * kTileSize;
        const int64_t width = q_->ne[0];
        for (int64_t first = 0; first < width; first += kTileColumns, sums += kTileSize) {
            for (int64_t j = 0; j < std::min(kTileColumns, width - first); ++j) {
                to[first + j] = sums[tile_place(i % kTileRows, j)] * factor;
            }
        }
    }

    int64_t inner_;  // width, rounded up to whole groups
    int64_t n_tiles_ = 0;
    std::vector<int8_t> queries_;      // tiles
    std::unique_ptr<float[]> scores_;  // results of tile and panel
    std::vector<uint16_t> weights_;    // tiles
    std::unique_ptr<float[]> sums_;    // results of tile and panel
    std::array<SoftmaxTile, kTiles> softmax_;
};

void attend(ggml_tensor* dst, int, int nth, void* work) {
    run_strips<Strip>(dst, kQueries, nth, work);
}

const OwnOperation kPackKeys = {"cpu pack keys", pack_keys};
const OwnOperation kPackValues = {"cpu pack values", pack_values};

}  // namespace

ggml_tensor* attention_16bit(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    const int64_t n_keys = round_up(k->ne[2], kTileColumns);
    const int64_t key_bytes = 2 * round_up(k->ne[0], kGroup) + kScaleBytes;
    const int64_t value_panels = round_up(v->ne[0], kTileColumns) / kTileColumns;
    const own::PackedKeys packed = {
        own_node(
            g,
            {kPackKeys, {GGML_TYPE_I8}, {kTileColumns, key_bytes, n_keys / kTileColumns, k->ne[1]}},
            {k}),
        own_node(g, {kPackValues, {GGML_TYPE_BF16}, {kTileColumns, n_keys, value_panels, v->ne[1]}},
                 {v})};
    return own::attention(g, {.q = q, .k = k, .v = v}, {.function = attend}, packed);
}

}  // namespace flux2::cpu
