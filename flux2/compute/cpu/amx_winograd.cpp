#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/filter.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/cpu/winograd.hpp"
#include "compute/cpu/winograd_parts.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace flux2::cpu {

#if defined(FLUX2_X86)

namespace {

constexpr int64_t kPairRows = 2 * kAmxRows;        // of a product
constexpr int64_t kPairColumns = 2 * kAmxColumns;  // of a product
constexpr int64_t kVector = 16;                    // floats

using Floats = float __attribute__((vector_size(kVector * 4)));
using Bits = uint32_t __attribute__((vector_size(kVector * 4)));

// ---- Floats as sums of two numbers in BF16 ----

// 32 values as a line of a tile: the first of a, the first of b, the second of a, and so on.
struct SplitLine {
    Bits rounded, rest;
};

FLUX2_AVX512 FLUX2_INLINE Bits round_to_bf16(const Floats& x) {
    Bits bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return (bits + 0x8000u) & 0xffff0000u;
}

FLUX2_AVX512 FLUX2_INLINE Floats what_is_left(const Floats& x, const Bits& rounded) {
    Floats y;
    std::memcpy(&y, &rounded, sizeof(y));
    return x - y;
}

FLUX2_AVX512 FLUX2_INLINE SplitLine split(const Floats& a, const Floats& b) {
    const Bits rounded_a = round_to_bf16(a);
    const Bits rounded_b = round_to_bf16(b);
    return {rounded_a >> 16 | rounded_b, round_to_bf16(what_is_left(a, rounded_a)) >> 16 |
                                             round_to_bf16(what_is_left(b, rounded_b))};
}

FLUX2_AVX512 FLUX2_INLINE void store(uint16_t* to, const Bits& line) {
    std::memcpy(to, &line, sizeof(line));
}

// The first n floats, at most 16, then zeros.
FLUX2_AVX512 FLUX2_INLINE Floats load_floats(const float* from, int64_t n) {
    Floats x;
    if (n >= kVector) {
        std::memcpy(&x, from, sizeof(x));
        return x;
    }
    std::array<float, kVector> some = {};
    std::copy_n(from, std::max<int64_t>(n, 0), some.begin());
    std::memcpy(&x, some.data(), sizeof(x));
    return x;
}

FLUX2_AVX512 FLUX2_INLINE void store_floats(float* to, const Floats& x, int64_t n) {
    if (n >= kVector) {
        std::memcpy(to, &x, sizeof(x));
        return;
    }
    std::array<float, kVector> some;
    std::memcpy(some.data(), &x, sizeof(x));
    std::copy_n(some.begin(), n, to);
}

// ---- First node: the filter, [3, 3, in, out] -> tiles [512, 4 * in / 32, 36, out / 32] ----
//
// Of every 32 output channels and point: the tiles of 16 channels, all rounded values and then what
// was left, and those of the other 16.

// One input channel of 16 filters, or zeros. `rows` are the 16 output channels.
FLUX2_AVX512 FLUX2_INLINE void transform_filters(const float* rows, int64_t row_size,
                                                 int64_t channel, Floats* points) {
    std::array<std::array<float, kVector>, kTaps* kTaps> taps = {};
    for (int64_t i = 0; i < kVector && channel * kTaps * kTaps < row_size; ++i) {
        for (size_t tap = 0; tap < taps.size(); ++tap) {
            taps[tap][static_cast<size_t>(i)] =
                rows[i * row_size + channel * kTaps * kTaps + static_cast<int64_t>(tap)];
        }
    }
    Floats g[kTaps * kTaps], lines[kTaps * kTileIn];
    std::memcpy(g, taps.data(), sizeof(g));
    for (int x = 0; x < kTaps; ++x) {
        transform_filter_line(g + x, kTaps, lines + x * kTileIn);
    }
    for (int y = 0; y < kTileIn; ++y) {
        transform_filter_line(lines + y, kTileIn, points + y * kTileIn);
    }
}

// Where a panel's tiles are made, 36 points with two parts each. Tiles begin at different lines of
// the cache here, unlike where they go, and are copied as a whole.
constexpr int64_t kMadeTile = kAmxTileSize + kAmxInner;
constexpr int64_t kMadeTiles = 2 * kPoints * kMadeTile;

// A tile of every point, of 16 output channels. `rows` are these, from input channel `first` on.
FLUX2_AVX512 void transform_tiles(const float* rows, int64_t n_in, int64_t first, uint16_t* made) {
    for (int64_t i = 0; i < kVector; ++i, made += kAmxInner) {
        Floats a[kPoints], b[kPoints];
        transform_filters(rows, kTaps * kTaps * n_in, first + i, a);
        transform_filters(rows, kTaps * kTaps * n_in, first + i + kVector, b);
        for (int64_t point = 0; point < kPoints; ++point) {
            const SplitLine line = split(a[point], b[point]);
            store(made + 2 * point * kMadeTile, line.rounded);
            store(made + (2 * point + 1) * kMadeTile, line.rest);
        }
    }
}

void transform_filter(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* filter = dst->src[0];
    const int64_t n_in = filter->ne[2];
    const int64_t n_tiles = dst->ne[1] / 4;
    const auto rows = scratch(kAmxColumns * kTaps * kTaps * n_in);
    const auto made = aligned_scratch<uint16_t>(kMadeTiles);
    share_items(work, 2 * dst->ne[3], nth, [&](int64_t panel) {
        if (panel * kAmxColumns < filter->ne[3]) {
            read_panel(filter, panel, rows.get());
        } else {
            std::fill_n(rows.get(), kAmxColumns * kTaps * kTaps * n_in, 0.0f);
        }
        uint16_t* first = static_cast<uint16_t*>(dst->data) +
                          (panel / 2 * kPoints * 2 + panel % 2) * 2 * n_tiles * kAmxTileSize;
        for (int64_t tile = 0; tile < n_tiles; ++tile) {
            transform_tiles(rows.get(), n_in, tile * kAmxInner, made.get());
            for (int64_t i = 0; i < 2 * kPoints; ++i) {
                const int64_t point = i / 2;
                const int64_t part = i % 2;
                std::copy_n(made.get() + i * kMadeTile, kAmxTileSize,
                            first + ((4 * point + part) * n_tiles + tile) * kAmxTileSize);
            }
        }
    });
}

// ---- Second node: the convolution ----

// How the work is shared: as many groups of tiles, in blocks of 32, times slices of the pairs of
// panels of output channels as there are threads. A group's blocks are taken a few at a time.
struct Sharing {
    int64_t n_groups, n_slices;
};

constexpr int64_t kBlocksAtOnce = 4;

Sharing choose_sharing(int64_t n_blocks, int64_t n_pairs, int64_t n_threads) {
    Sharing best = {1, 1};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t groups = 1; groups <= std::min(n_threads, n_blocks); ++groups) {
        const int64_t slices = std::min(n_threads / groups, n_pairs);
        const int64_t blocks = (n_blocks + groups - 1) / groups;
        const int64_t pairs = (n_pairs + slices - 1) / slices;
        // Products, reading the filter once for some blocks, and transforming the input.
        const int64_t cost =
            blocks * pairs + (blocks + kBlocksAtOnce - 1) / kBlocksAtOnce * pairs + blocks;
        if (cost < least) {
            best = {groups, slices};
            least = cost;
        }
    }
    return best;
}

class Convolution : WinogradMaps {
  public:
    explicit Convolution(ggml_tensor* dst)
        : WinogradMaps(dst),
          n_pairs_(filter_->ne[3]),
          inner_tiles_(filter_->ne[1] / 4),
          run_(2 * inner_tiles_ * kAmxTileSize) {}

    void run(int nth, void* work);

  private:
    // Values beside a block's, so that the 36 points do not compete for the same lines of the
    // cache.
    static constexpr int64_t kGap = 32;
    static constexpr int64_t kBlock = kPairRows * kPairColumns + kGap;  // results
    static constexpr int64_t kPairsAtOnce = 4;

    void run_strip(int64_t first_tile, int64_t n_tiles, int64_t first_pair, int64_t end_pair);
    void transform_input(int64_t tile, uint16_t* to) const;
    void multiply_pair(int64_t point, int64_t pair, int64_t n_blocks, float* to) const;
    void transform_output(int64_t tile, int64_t pair, const float* from);

    int64_t n_pairs_;      // of panels of output channels
    int64_t inner_tiles_;  // along the input channels
    int64_t run_;          // values of 16 rows or columns, both parts
    int64_t point_stride_ = 0;
    AlignedScratch<uint16_t> input_;  // [36][tile / 16] runs
    AlignedScratch<float> output_;    // [pair][tile / 32][36] blocks
};

void Convolution::run(int nth, void* work) {
    const int64_t n_blocks = (n_tiles_ + kPairRows - 1) / kPairRows;
    const Sharing sharing = choose_sharing(n_blocks, n_pairs_, nth);
    const int64_t n_groups = sharing.n_groups;
    const int64_t n_slices = sharing.n_slices;
    const int64_t of_group = (n_blocks + n_groups - 1) / n_groups;
    const int64_t n_strips = n_groups * ((of_group + kBlocksAtOnce - 1) / kBlocksAtOnce);
    const int64_t most_blocks = (n_blocks + n_strips - 1) / n_strips;
    const int64_t most_pairs = std::min(kPairsAtOnce, (n_pairs_ + n_slices - 1) / n_slices);
    point_stride_ = 2 * most_blocks * run_ + 2 * kGap;
    input_ = aligned_scratch<uint16_t>(kPoints * point_stride_);
    output_ = aligned_scratch<float>(most_pairs * most_blocks * kPoints * kBlock);
    share_items(work, n_strips * n_slices, nth, [&](int64_t i) {
        const int64_t strip = i / n_slices;
        const int64_t slice = i % n_slices;
        const int64_t first = strip * n_blocks / n_strips * kPairRows;
        const int64_t end = (strip + 1) * n_blocks / n_strips * kPairRows;
        run_strip(first, std::min(end, n_tiles_) - first, slice * n_pairs_ / n_slices,
                  (slice + 1) * n_pairs_ / n_slices);
    });
}

void Convolution::run_strip(int64_t first_tile, int64_t n_tiles, int64_t first_pair,
                            int64_t end_pair) {
    for (int64_t i = 0; i < n_tiles; ++i) {
        transform_input(first_tile + i,
                        input_.get() + i / kAmxRows * run_ + i % kAmxRows * kAmxInner);
    }
    const int64_t n_blocks = (n_tiles + kPairRows - 1) / kPairRows;
    const int64_t pair_size = n_blocks * kPoints * kBlock;
    for (int64_t first = first_pair; first < end_pair; first += kPairsAtOnce) {
        const int64_t n_pairs = std::min(kPairsAtOnce, end_pair - first);
        for (int64_t point = 0; point < kPoints; ++point) {
            for (int64_t i = 0; i < n_pairs; ++i) {
                multiply_pair(point, first + i, n_blocks, output_.get() + i * pair_size);
            }
        }
        for (int64_t i = 0; i < n_pairs; ++i) {
            for (int64_t tile = 0; tile < n_tiles; ++tile) {
                transform_output(first_tile + tile, first + i,
                                 output_.get() + i * pair_size +
                                     tile / kPairRows * kPoints * kBlock +
                                     tile % kPairRows * kPairColumns);
            }
        }
    }
}

FLUX2_AVX512 void Convolution::transform_input(int64_t tile, uint16_t* to) const {
    const std::array<const float*, kPoints> pixels = gather(tile);
    for (int64_t channel = 0; channel < n_in_; channel += kAmxInner, to += kAmxTileSize) {
        Floats lines[2][kPoints];
        for (int64_t half = 0; half < 2; ++half) {
            const int64_t first = channel + half * kVector;
            Floats d[kPoints];
            for (size_t i = 0; i < pixels.size(); ++i) {
                d[i] = load_floats(pixels[i] + first, n_in_ - first);
            }
            for (int x = 0; x < kTileIn; ++x) {
                transform_input_line(d + x, kTileIn, lines[half] + x * kTileIn);
            }
        }
        for (int y = 0; y < kTileIn; ++y) {
            Floats a[kTileIn], b[kTileIn];
            transform_input_line(lines[0] + y, kTileIn, a);
            transform_input_line(lines[1] + y, kTileIn, b);
            for (int x = 0; x < kTileIn; ++x) {
                const SplitLine line = split(a[x], b[x]);
                uint16_t* point = to + (y * kTileIn + x) * point_stride_;
                store(point, line.rounded);
                store(point + run_ / 2, line.rest);
            }
        }
    }
}

// One point of all blocks.
void Convolution::multiply_pair(int64_t point, int64_t pair, int64_t n_blocks, float* to) const {
    for (int64_t block = 0; block < n_blocks; ++block) {
        multiply_split({.rows = input_.get() + point * point_stride_ + block * 2 * run_,
                        .rows_distance = run_,
                        .columns = static_cast<const uint16_t*>(filter_->data) +
                                   (pair * kPoints + point) * 2 * run_,
                        .columns_distance = run_,
                        .n_tiles = inner_tiles_,
                        .results = to + (block * kPoints + point) * kBlock,
                        .stride = kPairColumns,
                        .adds = false});
    }
}

FLUX2_AVX512 void Convolution::transform_output(int64_t tile, int64_t pair, const float* from) {
    const TilePlace place = place_of(tile);
    for (int64_t first = 0; first < kPairColumns; first += kVector, from += kVector) {
        const int64_t channel = pair * kPairColumns + first;
        const int64_t n = n_out_ - channel;
        if (n <= 0) {
            return;
        }
        Floats m[kPoints], lines[kTileIn * kTileOut], y[kTileOut * kTileOut];
        for (int64_t i = 0; i < kPoints; ++i) {
            std::memcpy(&m[i], from + i * kBlock, sizeof(m[i]));
        }
        for (int x = 0; x < kTileIn; ++x) {
            transform_output_line(m + x, kTileIn, lines + x * kTileOut);
        }
        for (int row = 0; row < kTileOut; ++row) {
            transform_output_line(lines + row, kTileOut, y + row * kTileOut);
        }
        const Floats bias = load_floats(values(bias_) + channel, n);
        for (int64_t row = 0; row < place.n_y; ++row) {
            for (int64_t column = 0; column < place.n_x; ++column) {
                const int64_t at = pixel_at(place, row, column) * n_out_ + channel;
                Floats sum = y[row * kTileOut + column] + bias;
                if (skip_ != nullptr) {
                    sum += load_floats(values(skip_) + at, n);
                }
                store_floats(values(dst_) + at, sum, n);
            }
        }
    }
}

void convolve(ggml_tensor* dst, int, int nth, void* work) {
    const AmxThread thread;
    Convolution(dst).run(nth, work);
}

const OwnOperation kTransformFilter = {"cpu transform filter", transform_filter};

}  // namespace

ggml_tensor* winograd_conv_amx(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                               ggml_tensor* skip, int32_t scale) {
    const int64_t inner_tiles = round_up(filter->ne[2], kAmxInner) / kAmxInner;
    const int64_t n_pairs = round_up(filter->ne[3], kPairColumns) / kPairColumns;
    ggml_tensor* tiles = g.made_once(filter, [&] {
        return own_node(
            g,
            {kTransformFilter, {GGML_TYPE_BF16}, {kAmxTileSize, 4 * inner_tiles, kPoints, n_pairs}},
            {filter});
    });
    return own::conv(g, {.x = x, .packed_filter = tiles, .bias = bias, .skip = skip},
                     {.size = kTaps, .scale = scale}, {.function = convolve});
}

#else

// Never called: has_amx() is false.
ggml_tensor* winograd_conv_amx(Graph&, ggml_tensor*, ggml_tensor*, ggml_tensor*, ggml_tensor*,
                               int32_t) {
    return nullptr;
}

#endif

}  // namespace flux2::cpu
