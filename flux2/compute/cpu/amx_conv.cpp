#include "compute/cpu/amx_conv.hpp"

#include "compute/cpu/amx_filter.hpp"
#include "compute/cpu/amx_split.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/group_norm.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>

#if defined(FLUX2_X86)
#include "compute/cpu/x86_intrinsics.hpp"
#endif

namespace flux2::cpu {

#if defined(FLUX2_X86)

namespace {

constexpr int64_t kPairRows = 2 * kAmxRows;        // of a product
constexpr int64_t kPairColumns = 2 * kAmxColumns;  // of a product

constexpr int64_t kMostBytes = int64_t{640} << 10;                    // of converted pixels
constexpr int64_t kBytesPerPixel = 2 * kAmxInner * sizeof(uint16_t);  // of 32 channels

// A thread takes a rectangle of results and some pairs of panels of output channels at a time. Its
// pixels are converted first; they and a pair's filter stay in the second cache.
struct Sharing {
    int64_t width, height;  // of a rectangle; the last ones may be smaller
    int64_t n_slices;       // of the pairs
};

// The tiles of a rectangle: those of every row by itself, or of all rows one after the other with
// the border between them.
struct Tiling {
    int64_t n_lines;
    int64_t length;  // pixels of a line

    int64_t in_line() const { return parts_of(length, kAmxRows); }
    int64_t count() const { return n_lines * in_line(); }
};

// Whichever are fewer.
Tiling tile_rectangle(int64_t width, int64_t height, int64_t pitch) {
    const Tiling rows = {.n_lines = height, .length = width};
    const Tiling all = {.n_lines = 1, .length = (height - 1) * pitch + width};
    return rows.count() <= all.count() ? rows : all;
}

// Begins as the parameters of every convolution do.
struct AmxConvParams {
    own::ConvParams conv;
    bool adds, normalises;
};

class Convolution {
  public:
    explicit Convolution(ggml_tensor* dst)
        : dst_(dst),
          x_(dst->src[0]),
          filter_(dst->src[1]),
          bias_(dst->src[2]),
          params_(params_of<AmxConvParams>(dst)),
          border_(params_.conv.size / 2),
          n_in_(x_->ne[0]),
          n_out_(dst->ne[0]),
          n_planes_(parts_of(n_in_, kAmxInner)),
          n_pairs_(filter_->ne[2]),
          n_steps_(filter_->ne[1] / 4) {
        ggml_tensor* const* source = dst->src + 3;
        if (params_.adds) {
            skip_ = *source++;
        }
        if (params_.normalises) {
            const int64_t n_pixels = x_->ne[1] * x_->ne[2];
            norm_.emplace(
                own::GroupNormInput{dst->src[0], source[0], source[1], source[2]},
                own::GroupNormParams{.silu = true, .n_pixels = n_pixels, .band_pixels = n_pixels});
        }
    }

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
    const float* pixel(int64_t x, int64_t y) const;
    void convert_pixel(const float* from, uint16_t* to) const;
    Floats read(const float* pixel, int64_t first) const;
    void multiply_pair(const Rectangle& part, int64_t pair);
    void finish(const Rectangle& part, int64_t first, int64_t n_pixels, const float* sums,
                int64_t channel);

    ggml_tensor* dst_;  // [out, w, h]
    const ggml_tensor* x_;
    const ggml_tensor* filter_;
    const ggml_tensor* bias_;
    const ggml_tensor* skip_ = nullptr;
    AmxConvParams params_;
    std::optional<ChannelNorm> norm_;
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
    constexpr int64_t kFilterCost = 4;      // reading a step's tiles
    constexpr int64_t kBytesPerCost = 256;  // converting
    const int64_t height = dst_->ne[2];
    Sharing best = {};
    int64_t least = std::numeric_limits<int64_t>::max();
    const auto consider = [&](int64_t columns, int64_t rows) {
        const int64_t n = parts_of(dst_->ne[1], columns) * parts_of(height, rows);
        const int64_t tiles = tile_rectangle(columns, rows, columns + 2 * border_).count();
        for (int64_t slices = 1; slices <= n_pairs_; slices *= 2) {
            const int64_t steps = parts_of(n_pairs_, slices) * n_steps_;
            const int64_t cost =
                parts_of(n * slices, n_threads) * (steps * (parts_of(tiles, 2) + kFilterCost) +
                                                   bytes_of(columns, rows) / kBytesPerCost);
            if (cost < least) {
                best = {columns, rows, slices};
                least = cost;
            }
        }
    };
    for (int64_t columns = dst_->ne[1];; columns = round_up(parts_of(columns, 2), kAmxRows)) {
        const bool is_least = columns <= kAmxRows;
        for (int64_t down = 1; down <= height; ++down) {
            const int64_t rows = parts_of(height, down);
            if (bytes_of(columns, rows) <= kMostBytes || (is_least && rows == 1)) {
                consider(columns, rows);
            }
        }
        if (is_least) {
            return best;
        }
    }
}

void Convolution::run(int nth, void* work) {
    const Sharing sharing = choose_sharing(nth);
    pitch_ = sharing.width + 2 * border_;
    // The last tile of a line reads on behind it: what lies there makes results that are not used.
    // The number of pixels is odd, so that planes do not compete for the same lines of the cache.
    plane_ = ((sharing.height * pitch_ + kAmxRows + 2 * border_ * (pitch_ + 1)) | 1) * kAmxInner;
    pixels_ = aligned_scratch<uint16_t>(2 * n_planes_ * plane_);
    const int64_t across = parts_of(dst_->ne[1], sharing.width);
    const int64_t down = parts_of(dst_->ne[2], sharing.height);
    int64_t last = -1;
    share_items(work, down * across * sharing.n_slices, nth, [&](int64_t i) {
        const int64_t row = i % down;
        const int64_t slice = i / down / across;
        const bool continues = row > 0 && i == last + 1;
        if (continues) {
            keep_border(sharing.height);
        }
        last = i;
        const int64_t left = i / down % across * sharing.width;
        const int64_t top = row * sharing.height;
        const Rectangle part = {left, top, std::min(sharing.width, dst_->ne[1] - left),
                                std::min(sharing.height, dst_->ne[2] - top)};
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
            convert_pixel(pixel(part.left + column - border_, y),
                          pixels_.get() + (row * pitch_ + column) * kAmxInner);
        }
    }
}

// Of the map that is convolved, before any norm; null outside of it.
const float* Convolution::pixel(int64_t x, int64_t y) const {
    if (x < 0 || y < 0 || x >= dst_->ne[1] || y >= dst_->ne[2]) {
        return nullptr;
    }
    const int32_t scale = params_.conv.scale;
    return values(x_) + (y / scale * x_->ne[1] + x / scale) * n_in_;
}

// y / (1 + e^-y), to 3e-7 of y.
FLUX2_AVX512 FLUX2_INLINE __m512 silu_of(__m512 y) {
    const __m512 x = _mm512_mul_ps(y, _mm512_set1_ps(-std::numbers::log2e_v<float>));
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, whole);
    // 2^r by Taylor's series: (ln 2)^i / i!
    __m512 sum = _mm512_set1_ps(1.54035304e-4f);
    for (const float c :
         {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 0.240226507f, 0.693147181f, 1.0f}) {
        sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(c));
    }
    return _mm512_div_ps(y, _mm512_add_ps(_mm512_scalef_ps(sum, whole), _mm512_set1_ps(1.0f)));
}

// At most 16 channels of a pixel from `first` on, then zeros.
FLUX2_AVX512 FLUX2_INLINE Floats Convolution::read(const float* pixel, int64_t first) const {
    const int64_t n = n_in_ - first;
    const Floats x = load_floats(pixel + first, n);
    if (!norm_) {
        return x;
    }
    const Floats mean = load_floats(norm_->mean.data() + first, n);
    const Floats scale = load_floats(norm_->scale.data() + first, n);
    const Floats bias = load_floats(norm_->bias.data() + first, n);
    return silu_of((x - mean) * scale + bias);
}

// Zeros where there is none.
FLUX2_AVX512 void Convolution::convert_pixel(const float* from, uint16_t* to) const {
    for (int64_t channel = 0; channel < n_in_; channel += kAmxInner, to += 2 * plane_) {
        SplitLine line = {};
        if (from != nullptr) {
            line = split(read(from, channel), read(from, channel + kVector));
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
    const Tiling tiling = tile_rectangle(part.width, part.height, pitch_);
    const auto first_of = [&](int64_t tile) {
        return tile / tiling.in_line() * pitch_ + tile % tiling.in_line() * kAmxRows;
    };
    const auto size_of = [&](int64_t tile) {
        return std::min(kAmxRows, tiling.length - tile % tiling.in_line() * kAmxRows);
    };
    // While a pair is multiplied, the next one's filter comes into the cache.
    constexpr int64_t kLinesPerStep = 2 * kAmxTileSize * sizeof(uint16_t) / kCacheLine;
    const int64_t n_cache_lines = parts_of(kLinesPerStep, parts_of(tiling.count(), 2));
    const uint16_t* next = tiles + filter_->ne[1] * kAmxTileSize;
    const uint16_t* next_end = pair + 1 < n_pairs_ ? next + 2 * run : next;
    for (int64_t tile = 0; tile < tiling.count(); tile += 2) {
        const int64_t second = std::min(tile + 1, tiling.count() - 1);
        convolve({.pixels = pixels_.get() + first_of(tile) * kAmxInner,
                  .pixels_distance = (first_of(second) - first_of(tile)) * kAmxInner,
                  .row = pitch_ * kAmxInner,
                  .plane = plane_,
                  .n_planes = n_planes_,
                  .size = params_.conv.size,
                  .columns = tiles,
                  .columns_rest = has_rest ? tiles + 2 * run : nullptr,
                  .columns_distance = run,
                  .results = sums_.data(),
                  .next_columns = next,
                  .n_cache_lines = next < next_end ? n_cache_lines : 0});
        next += n_cache_lines * n_steps_ * static_cast<int64_t>(kCacheLine / sizeof(uint16_t));
        finish(part, first_of(tile), size_of(tile), sums_.data(), pair * kPairColumns);
        if (second != tile) {
            finish(part, first_of(second), size_of(second), sums_.data() + kAmxRows * kPairColumns,
                   pair * kPairColumns);
        }
    }
}

// Results of some pixels from `first` on, of which a few may lie in the border.
FLUX2_AVX512 void Convolution::finish(const Rectangle& part, int64_t first, int64_t n_pixels,
                                      const float* sums, int64_t channel) {
    const int64_t n = n_out_ - channel;
    const Floats bias[2] = {load_floats(values(bias_) + channel, n),
                            load_floats(values(bias_) + channel + kVector, n - kVector)};
    int64_t row = first / pitch_;
    int64_t column = first % pitch_;
    for (int64_t i = 0; i < n_pixels; ++i) {
        if (column < part.width) {
            const int64_t at =
                ((part.top + row) * dst_->ne[1] + part.left + column) * n_out_ + channel;
            for (int64_t half = 0; half < 2 && half * kVector < n; ++half) {
                Floats sum;
                std::memcpy(&sum, sums + i * kPairColumns + half * kVector, sizeof(sum));
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

}  // namespace

ggml_tensor* amx_conv(Graph& g, const AmxConvInput& in, int32_t scale) {
    const auto* ne = in.filter->ne;
    ggml_tensor* tiles = g.made_once(in.filter, [&] { return amx_filter(g, in.filter); });
    const AmxConvParams params = {.conv = {.size = static_cast<int32_t>(ne[0]), .scale = scale},
                                  .adds = in.skip != nullptr,
                                  .normalises = in.norm_weight != nullptr};
    return own_node(g,
                    {own::kConv,
                     {.function = convolve_map},
                     {ne[3], in.x->ne[1] * scale, in.x->ne[2] * scale, 1}},
                    {in.x, tiles, in.bias, in.skip, in.norm_weight, in.norm_bias,
                     params.normalises ? moments(g, in.x) : nullptr},
                    params);
}

#else

// Never called: has_amx() is false.
ggml_tensor* amx_conv(Graph&, const AmxConvInput&, int32_t) {
    return nullptr;
}

#endif

}  // namespace flux2::cpu
