#include "compute/cpu/amx_conv.hpp"

#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/filter.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
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
constexpr int64_t kMostTaps = 9;                   // positions in a filter

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

// ---- First node: the filter, [size, size, in, out] -> tiles [512, 4 * steps + 1, out / 32] ----
//
// A step is 32 input channels at one position; positions count first. Of every 32 output channels:
// the tiles of 16 of them, rounded, those of the other 16, what was left of both likewise, and a
// last tile whose first number tells whether anything was left; otherwise those tiles are not made.

// One input channel at every position, of 16 output channels; zeros past the last channel.
FLUX2_AVX512 FLUX2_INLINE void gather_taps(const float* rows, int64_t n_in, int64_t n_taps,
                                           int64_t channel, Floats* taps) {
    float some[kMostTaps][kVector] = {};
    for (int64_t i = 0; i < kVector && channel < n_in; ++i) {
        const float* from = rows + (i * n_in + channel) * n_taps;
        for (int64_t tap = 0; tap < n_taps; ++tap) {
            some[tap][i] = from[tap];
        }
    }
    std::memcpy(taps, some, sizeof(some));
}

// Whether BF16 does not hold all of them.
bool have_rest(const float* values, int64_t n) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; ++i) {
        uint32_t value;
        std::memcpy(&value, values + i, sizeof(value));
        bits |= value;
    }
    return (bits & 0xffffu) != 0;
}

// The tiles of 16 output channels; `rest` may be null.
FLUX2_AVX512 void make_tiles(const float* rows, int64_t n_in, int64_t n_taps, uint16_t* rounded,
                             uint16_t* rest) {
    for (int64_t first = 0; first < n_in; first += kAmxInner) {
        const int64_t tile = first / kAmxInner * n_taps * kAmxTileSize;
        for (int64_t i = 0; i < kVector; ++i) {
            Floats a[kMostTaps], b[kMostTaps];
            gather_taps(rows, n_in, n_taps, first + i, a);
            gather_taps(rows, n_in, n_taps, first + i + kVector, b);
            for (int64_t tap = 0; tap < n_taps; ++tap) {
                const SplitLine line = split(a[tap], b[tap]);
                const int64_t at = tile + tap * kAmxTileSize + i * kAmxInner;
                store(rounded + at, line.rounded);
                if (rest != nullptr) {
                    store(rest + at, line.rest);
                }
            }
        }
    }
}

void make_filter(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* filter = dst->src[0];
    const int64_t n_taps = filter->ne[0] * filter->ne[1];
    const int64_t n_in = filter->ne[2];
    const int64_t run = dst->ne[1] / 4 * kAmxTileSize;
    const int64_t panel_size = kAmxColumns * n_taps * n_in;
    const auto rows = scratch(2 * panel_size);
    share_items(work, dst->ne[2], nth, [&](int64_t pair) {
        read_panel(filter, 2 * pair, rows.get());
        if ((2 * pair + 1) * kAmxColumns < filter->ne[3]) {
            read_panel(filter, 2 * pair + 1, rows.get() + panel_size);
        } else {
            std::fill_n(rows.get() + panel_size, panel_size, 0.0f);
        }
        uint16_t* tiles = static_cast<uint16_t*>(dst->data) + pair * dst->ne[1] * kAmxTileSize;
        const bool has_rest = have_rest(rows.get(), 2 * panel_size);
        for (int64_t half = 0; half < 2; ++half) {
            make_tiles(rows.get() + half * panel_size, n_in, n_taps, tiles + half * run,
                       has_rest ? tiles + (2 + half) * run : nullptr);
        }
        tiles[4 * run] = has_rest ? 1 : 0;
    });
}

// ---- Second node: the convolution ----

// A thread takes a rectangle of results and some pairs of panels of output channels at a time. Its
// pixels are converted first; they and a pair's filter stay in the second cache.
struct Sharing {
    int64_t across, down;  // rectangles
    int64_t n_slices;      // of the pairs
};

constexpr int64_t kMostBytes = int64_t{640} << 10;                    // of converted pixels
constexpr int64_t kBytesPerPixel = 2 * kAmxInner * sizeof(uint16_t);  // of 32 channels

int64_t parts_of(int64_t n, int64_t most) {
    return (n + most - 1) / most;
}

class Convolution {
  public:
    explicit Convolution(ggml_tensor* dst)
        : dst_(dst),
          x_(dst->src[0]),
          filter_(dst->src[1]),
          bias_(dst->src[2]),
          skip_(dst->src[3]),
          params_(params_of<own::ConvParams>(dst)),
          border_(params_.size / 2),
          n_in_(x_->ne[0]),
          n_out_(dst->ne[0]),
          n_planes_(parts_of(n_in_, kAmxInner)),
          n_pairs_(filter_->ne[2]),
          n_steps_(filter_->ne[1] / 4) {}

    void run(int nth, void* work);

  private:
    struct Rectangle {
        int64_t left, top, width, height;
    };

    int64_t bytes_of(int64_t width, int64_t height) const {
        return (width + 2 * border_) * (height + 2 * border_) * n_planes_ * kBytesPerPixel;
    }
    Sharing choose_sharing(int n_threads) const;
    void keep_border(int64_t n_rows);
    void convert(const Rectangle& part, int64_t first);
    void convert_pixel(const float* from, uint16_t* to) const;
    void multiply_pair(const Rectangle& part, int64_t pair);
    void finish(const Rectangle& part, int64_t first, int64_t channel);

    ggml_tensor* dst_;  // [out, w, h]
    const ggml_tensor* x_;
    const ggml_tensor* filter_;
    const ggml_tensor* bias_;
    const ggml_tensor* skip_;  // may be null
    own::ConvParams params_;
    int64_t border_;  // pixels around a rectangle that it needs
    int64_t n_in_, n_out_;
    int64_t n_planes_;  // of 32 input channels
    int64_t n_pairs_;   // of panels of output channels
    int64_t n_steps_;
    int64_t pitch_ = 0;                // pixels of a converted row
    int64_t plane_ = 0;                // values of a plane, rounded pixels or what was left of them
    AlignedScratch<uint16_t> pixels_;  // [plane][2][row][column][32 channels]
    alignas(kCacheLine) std::array<float, kPairRows * kPairColumns> sums_;
};

// The least time of the thread that does the most, in units of a product of 32 by 32 by 32.
Sharing Convolution::choose_sharing(int n_threads) const {
    constexpr int64_t kLeastRows = 4;       // where a rectangle is not as wide as the map
    constexpr int64_t kFilterCost = 4;      // reading a step's tiles
    constexpr int64_t kBytesPerCost = 256;  // converting
    const int64_t width = dst_->ne[1];
    const int64_t height = dst_->ne[2];
    const int64_t column_bytes = bytes_of(1, kLeastRows) - bytes_of(0, kLeastRows);
    const int64_t most_columns =
        std::max<int64_t>(kMostBytes / column_bytes - 2 * border_, kPairRows);
    const int64_t across = parts_of(width, most_columns);
    const int64_t columns = parts_of(width, across);
    Sharing best = {};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t down = 1; down <= height; ++down) {
        const int64_t rows = parts_of(height, down);
        if (rows > 1 && bytes_of(columns, rows) > kMostBytes) {
            continue;
        }
        const int64_t blocks = parts_of(rows * (columns + 2 * border_), kPairRows);
        for (int64_t slices = 1; slices <= n_pairs_; slices *= 2) {
            const int64_t steps = parts_of(n_pairs_, slices) * n_steps_;
            const int64_t cost =
                parts_of(across * down * slices, n_threads) *
                (steps * (blocks + kFilterCost) + bytes_of(columns, rows) / kBytesPerCost);
            if (cost < least) {
                best = {across, down, slices};
                least = cost;
            }
        }
    }
    return best;
}

void Convolution::run(int nth, void* work) {
    const Sharing sharing = choose_sharing(nth);
    const int64_t most_width = parts_of(dst_->ne[1], sharing.across);
    const int64_t most_height = parts_of(dst_->ne[2], sharing.down);
    pitch_ = most_width + 2 * border_;
    // The last block reads on behind the last row: what lies there, and beside rectangles that are
    // less wide, makes results that are not used. The number of pixels is odd, so that planes do
    // not compete for the same lines of the cache.
    plane_ =
        ((round_up(most_height * pitch_, kPairRows) + 2 * border_ * (pitch_ + 1)) | 1) * kAmxInner;
    pixels_ = aligned_scratch<uint16_t>(2 * n_planes_ * plane_);
    Rectangle part = {};
    int64_t last = -1;
    share_items(work, sharing.down * sharing.across * sharing.n_slices, nth, [&](int64_t i) {
        const int64_t row = i % sharing.down;
        const int64_t column = i / sharing.down % sharing.across;
        const int64_t slice = i / sharing.down / sharing.across;
        const bool continues = row > 0 && i == last + 1;
        if (continues) {
            keep_border(part.height);
        }
        last = i;
        const int64_t left = column * dst_->ne[1] / sharing.across;
        const int64_t top = row * dst_->ne[2] / sharing.down;
        part = {left, top, (column + 1) * dst_->ne[1] / sharing.across - left,
                (row + 1) * dst_->ne[2] / sharing.down - top};
        convert(part, continues ? 2 * border_ : 0);
        const int64_t end = (slice + 1) * n_pairs_ / sharing.n_slices;
        for (int64_t pair = slice * n_pairs_ / sharing.n_slices; pair < end; ++pair) {
            multiply_pair(part, pair);
        }
    });
}

// The rows around the end of a rectangle of so many become the first of the one below.
void Convolution::keep_border(int64_t n_rows) {
    const int64_t n = 2 * border_ * pitch_ * kAmxInner;
    for (int64_t i = 0; i < 2 * n_planes_; ++i) {
        uint16_t* plane = pixels_.get() + i * plane_;
        std::copy_n(plane + n_rows * pitch_ * kAmxInner, n, plane);
    }
}

// From row `first` on, counted from the border above.
void Convolution::convert(const Rectangle& part, int64_t first) {
    for (int64_t row = first; row < part.height + 2 * border_; ++row) {
        const int64_t y = part.top + row - border_;
        for (int64_t column = 0; column < part.width + 2 * border_; ++column) {
            const int64_t x = part.left + column - border_;
            const bool inside = x >= 0 && y >= 0 && x < dst_->ne[1] && y < dst_->ne[2];
            convert_pixel(
                inside ? values(x_) + (y / params_.scale * x_->ne[1] + x / params_.scale) * n_in_
                       : nullptr,
                pixels_.get() + (row * pitch_ + column) * kAmxInner);
        }
    }
}

// Zeros where there is none.
FLUX2_AVX512 void Convolution::convert_pixel(const float* from, uint16_t* to) const {
    for (int64_t channel = 0; channel < n_in_; channel += kAmxInner, to += 2 * plane_) {
        SplitLine line = {};
        if (from != nullptr) {
            line = split(load_floats(from + channel, n_in_ - channel),
                         load_floats(from + channel + kVector, n_in_ - channel - kVector));
        }
        store(to, line.rounded);
        store(to + plane_, line.rest);
    }
}

void Convolution::multiply_pair(const Rectangle& part, int64_t pair) {
    const int64_t run = n_steps_ * kAmxTileSize;
    const uint16_t* tiles =
        static_cast<const uint16_t*>(filter_->data) + pair * filter_->ne[1] * kAmxTileSize;
    const bool has_rest = tiles[4 * run] != 0;
    for (int64_t first = 0; first < part.height * pitch_; first += kPairRows) {
        convolve({.pixels = pixels_.get() + first * kAmxInner,
                  .row = pitch_ * kAmxInner,
                  .plane = plane_,
                  .n_planes = n_planes_,
                  .size = params_.size,
                  .columns = tiles,
                  .columns_rest = has_rest ? tiles + 2 * run : nullptr,
                  .columns_distance = run,
                  .results = sums_.data()});
        finish(part, first, pair * kPairColumns);
    }
}

// Results of a block of pixels, some of which lie in the border.
FLUX2_AVX512 void Convolution::finish(const Rectangle& part, int64_t first, int64_t channel) {
    const int64_t n = n_out_ - channel;
    const Floats bias[2] = {load_floats(values(bias_) + channel, n),
                            load_floats(values(bias_) + channel + kVector, n - kVector)};
    int64_t row = first / pitch_;
    int64_t column = first % pitch_;
    for (int64_t i = 0; i < kPairRows && row < part.height; ++i) {
        if (column < part.width) {
            const int64_t at =
                ((part.top + row) * dst_->ne[1] + part.left + column) * n_out_ + channel;
            for (int64_t half = 0; half < 2 && half * kVector < n; ++half) {
                Floats sum;
                std::memcpy(&sum, sums_.data() + i * kPairColumns + half * kVector, sizeof(sum));
                sum += bias[half];
                const int64_t from = at + half * kVector;
                if (skip_ != nullptr) {
                    sum += load_floats(values(skip_) + from, n - half * kVector);
                }
                store_floats(values(dst_) + from, sum, n - half * kVector);
            }
        }
        if (++column == pitch_) {
            column = 0;
            ++row;
        }
    }
}

void convolve_map(ggml_tensor* dst, int, int nth, void* work) {
    const AmxThread thread;
    Convolution(dst).run(nth, work);
}

const OwnOperation kMakeFilter = {"cpu amx filter", make_filter};

}  // namespace

ggml_tensor* amx_conv(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                      ggml_tensor* skip, int32_t scale) {
    const int64_t n_steps = parts_of(filter->ne[2], kAmxInner) * filter->ne[0] * filter->ne[1];
    const int64_t n_pairs = parts_of(filter->ne[3], kPairColumns);
    ggml_tensor* tiles = g.made_once(filter, [&] {
        return own_node(
            g, {kMakeFilter, {GGML_TYPE_BF16}, {kAmxTileSize, 4 * n_steps + 1, n_pairs, 1}},
            {filter});
    });
    return own::conv(g, {.x = x, .packed_filter = tiles, .bias = bias, .skip = skip},
                     {.size = static_cast<int32_t>(filter->ne[0]), .scale = scale},
                     {.function = convolve_map});
}

#else

// Never called: has_amx() is false.
ggml_tensor* amx_conv(Graph&, ggml_tensor*, ggml_tensor*, ggml_tensor*, ggml_tensor*, int32_t) {
    return nullptr;
}

#endif

}  // namespace flux2::cpu
