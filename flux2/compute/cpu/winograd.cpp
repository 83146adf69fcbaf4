#include "compute/cpu/winograd.hpp"

#include "compute/cpu/filter.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/feature_map_nodes.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace flux2::cpu {
namespace {

constexpr int kIn = 6;    // values of a tile's input along one side
constexpr int kOut = 4;   // and of its output
constexpr int kTaps = 3;  // of the filter
constexpr int64_t kPoints = kIn * kIn;

constexpr float kP = 5.0f / 8;
constexpr float kQ = 3.0f / 2;
constexpr float kPP = kP * kP;
constexpr float kQQ = kQ * kQ;

// ---- The transforms of one line; `step` is the distance of neighbours in the source ----

// G g
void transform_filter_line(const Lanes* g, int step, Lanes* to) {
    constexpr float kAt0 = 1 / (kPP * kQQ);
    constexpr float kAtP = 1 / (2 * kPP * (kPP - kQQ));
    constexpr float kAtQ = 1 / (2 * kQQ * (kQQ - kPP));
    const Lanes &g0 = g[0], &g1 = g[step], &g2 = g[2 * step];
    const Lanes even_p = kAtP * g0 + kAtP * kPP * g2;
    const Lanes even_q = kAtQ * g0 + kAtQ * kQQ * g2;
    const Lanes odd_p = kAtP * kP * g1;
    const Lanes odd_q = kAtQ * kQ * g1;
    to[0] = kAt0 * g0;
    to[1] = even_p + odd_p;
    to[2] = even_p - odd_p;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = g2;
}

// B^T d
inline void transform_input_line(const Lanes* d, int step, Lanes* to) {
    const Lanes &d0 = d[0], &d1 = d[step], &d2 = d[2 * step], &d3 = d[3 * step], &d4 = d[4 * step],
                &d5 = d[5 * step];
    const Lanes even_p = d4 - kQQ * d2;
    const Lanes even_q = d4 - kPP * d2;
    const Lanes odd_p = kP * d3 - kP * kQQ * d1;
    const Lanes odd_q = kQ * d3 - kQ * kPP * d1;
    to[0] = kPP * kQQ * d0 - (kPP + kQQ) * d2 + d4;
    to[1] = even_p + odd_p;
    to[2] = even_p - odd_p;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = kPP * kQQ * d1 - (kPP + kQQ) * d3 + d5;
}

// A^T m
inline void transform_output_line(const Lanes* m, int step, Lanes* to) {
    const Lanes &m1 = m[step], &m2 = m[2 * step], &m3 = m[3 * step], &m4 = m[4 * step];
    const Lanes even_p = m1 + m2;
    const Lanes even_q = m3 + m4;
    const Lanes odd_p = m1 - m2;
    const Lanes odd_q = m3 - m4;
    to[0] = m[0] + even_p + even_q;
    to[1] = kP * odd_p + kQ * odd_q;
    to[2] = kPP * even_p + kQQ * even_q;
    to[3] = kP * kPP * odd_p + kQ * kQQ * odd_q + m[5 * step];
}

// ---- First node: the filter, [3, 3, in, out] -> panels [16, in, out / 16, 36] ----

// 16 filters of one input channel. `rows` are the 16 output channels, each 9 values per input.
void transform_filters(const float* rows, int64_t row_size, float* to, int64_t point_stride) {
    for (int64_t first = 0; first < kPanel; first += kLanes) {
        Lanes g[kTaps * kTaps], lines[kTaps * kIn], points[kPoints];
        for (int64_t tap = 0; tap < kTaps * kTaps; ++tap) {
            std::array<float, kLanes> taps;
            for (int64_t i = 0; i < kLanes; ++i) {
                taps[static_cast<size_t>(i)] = rows[(first + i) * row_size + tap];
            }
            g[tap] = load(taps.data());
        }
        for (int x = 0; x < kTaps; ++x) {
            transform_filter_line(g + x, kTaps, lines + x * kIn);
        }
        for (int y = 0; y < kIn; ++y) {
            transform_filter_line(lines + y, kIn, points + y * kIn);
        }
        for (int64_t point = 0; point < kPoints; ++point) {
            store(to + point * point_stride + first, points[point]);
        }
    }
}

void transform_filter(ggml_tensor* dst, int ith, int nth, void*) {
    const ggml_tensor* filter = dst->src[0];
    const int64_t n_in = dst->ne[1];
    const int64_t n_panels = dst->ne[2];
    const int64_t row_size = kTaps * kTaps * n_in;
    const auto rows = scratch(kPanel * row_size);
    for (int64_t panel = ith; panel < n_panels; panel += nth) {
        read_panel(filter, panel, rows.get());
        for (int64_t i = 0; i < n_in; ++i) {
            transform_filters(rows.get() + i * kTaps * kTaps, row_size,
                              values(dst) + (panel * n_in + i) * kPanel, n_panels * n_in * kPanel);
        }
    }
}

// ---- Second node: the convolution ----

// Some tiles and some panels of output channels: the piece of work of one thread at a time.
struct TileWork {
    int64_t first_tile, n_tiles;
    int64_t first_panel, n_panels;
};

class Convolution {
  public:
    explicit Convolution(ggml_tensor* dst)
        : dst_(dst),
          x_(dst->src[0]),
          filter_(dst->src[1]),
          bias_(dst->src[2]),
          skip_(dst->src[3]),
          scale_(params_of<own::ConvParams>(dst).scale),
          n_in_(x_->ne[0]),
          n_out_(dst->ne[0]),
          tiles_across_((dst->ne[1] + kOut - 1) / kOut),
          n_tiles_(tiles_across_ * ((dst->ne[2] + kOut - 1) / kOut)),
          zeros_(static_cast<size_t>(n_in_)) {}

    void run(int ith, int nth);

  private:
    // Distances in scratch. A few floats more than the values take, so that the 36 points of a
    // pixel do not compete for the same lines of the cache.
    static constexpr int64_t kGap = 16;

    void run(const TileWork& work);
    void gather(int64_t tile, std::array<const float*, kPoints>& pixels) const;
    void transform_input(int64_t tile, float* to);
    void transform_output(const TileWork& work, int64_t tile, const float* from);
    void write(int64_t pixel, int64_t channel, const Lanes& value);

    ggml_tensor* dst_;  // [out, w, h]
    const ggml_tensor* x_;
    const ggml_tensor* filter_;  // transformed
    const ggml_tensor* bias_;
    const ggml_tensor* skip_;  // may be null
    int64_t scale_, n_in_, n_out_, tiles_across_, n_tiles_;
    std::vector<float> zeros_;                 // a pixel outside the feature map
    std::unique_ptr<float[]> input_, output_;  // [36][tile][in], [36][tile][out]
    int64_t in_width_ = 0, in_stride_ = 0;     // of a tile, of a point
    int64_t out_width_ = 0, out_stride_ = 0;
};

// Splits the tiles into strips whose transformed values stay in the cache, as many for each thread.
// Where these would become too short to be worth reading the filter for, the output channels are
// split instead.
void Convolution::run(int ith, int nth) {
    constexpr int64_t kStripFloats = 1 << 20;
    constexpr int64_t kLeastTiles = 20;
    const int64_t n_panels = filter_->ne[2];
    const int64_t widest = std::max(n_in_, n_panels * kPanel);
    const int64_t most = std::clamp<int64_t>(kStripFloats / kPoints / widest, kLeastTiles, 120);
    const int64_t fewest = (n_tiles_ + most - 1) / most;
    const int64_t n_strips = n_tiles_ >= nth * kLeastTiles ? round_up(fewest, nth) : fewest;
    const int64_t n_slices = std::min(n_panels, (nth + n_strips - 1) / n_strips);
    const int64_t strip = (n_tiles_ + n_strips - 1) / n_strips;
    const int64_t slice = (n_panels + n_slices - 1) / n_slices;

    in_width_ = round_up(n_in_, kLanes);
    in_stride_ = strip * in_width_ + kGap;
    out_width_ = slice * kPanel;
    out_stride_ = strip * out_width_ + kGap;
    input_ = scratch(kPoints * in_stride_);
    output_ = scratch(kPoints * out_stride_);
    for (int64_t i = ith; i < n_strips * n_slices; i += nth) {
        const int64_t tile = i / n_slices * strip;
        const int64_t panel = i % n_slices * slice;
        const TileWork work{.first_tile = tile,
                            .n_tiles = std::min(strip, n_tiles_ - tile),
                            .first_panel = panel,
                            .n_panels = std::min(slice, n_panels - panel)};
        if (work.n_tiles > 0 && work.n_panels > 0) {
            run(work);
        }
    }
}

void Convolution::run(const TileWork& work) {
    for (int64_t i = 0; i < work.n_tiles; ++i) {
        transform_input(work.first_tile + i, input_.get() + i * in_width_);
    }
    const int64_t panel_size = n_in_ * kPanel;
    for (int64_t point = 0; point < kPoints; ++point) {
        multiply({.a = input_.get() + point * in_stride_,
                  .a_stride = in_width_,
                  .n_rows = work.n_tiles,
                  .n_inner = n_in_,
                  .b = values(filter_) + (point * filter_->ne[2] + work.first_panel) * panel_size,
                  .b_stride = panel_size,
                  .n_panels = work.n_panels,
                  .c = output_.get() + point * out_stride_,
                  .c_stride = out_width_});
    }
    for (int64_t i = 0; i < work.n_tiles; ++i) {
        transform_output(work, work.first_tile + i, output_.get() + i * out_width_);
    }
}

// Where the 6x6 input pixels of a tile lie; the border of one pixel is zeros.
void Convolution::gather(int64_t tile, std::array<const float*, kPoints>& pixels) const {
    const int64_t left = tile % tiles_across_ * kOut - 1;
    const int64_t top = tile / tiles_across_ * kOut - 1;
    for (int64_t i = 0; i < kPoints; ++i) {
        const int64_t x = left + i % kIn;
        const int64_t y = top + i / kIn;
        const bool inside = x >= 0 && y >= 0 && x < dst_->ne[1] && y < dst_->ne[2];
        pixels[static_cast<size_t>(i)] =
            inside ? values(x_) + (y / scale_ * x_->ne[1] + x / scale_) * n_in_ : zeros_.data();
    }
}

void Convolution::transform_input(int64_t tile, float* to) {
    std::array<const float*, kPoints> pixels;
    gather(tile, pixels);
    for (int64_t channel = 0; channel < n_in_; channel += kLanes) {
        Lanes d[kPoints], lines[kPoints], points[kPoints];
        for (size_t i = 0; i < pixels.size(); ++i) {
            d[i] = load_some(pixels[i] + channel, n_in_ - channel);
        }
        for (int x = 0; x < kIn; ++x) {
            transform_input_line(d + x, kIn, lines + x * kIn);
        }
        for (int y = 0; y < kIn; ++y) {
            transform_input_line(lines + y, kIn, points + y * kIn);
        }
        for (int64_t i = 0; i < kPoints; ++i) {
            store(to + i * in_stride_ + channel, points[i]);
        }
    }
}

void Convolution::transform_output(const TileWork& work, int64_t tile, const float* from) {
    const int64_t left = tile % tiles_across_ * kOut;
    const int64_t top = tile / tiles_across_ * kOut;
    const int64_t n_x = std::min<int64_t>(kOut, dst_->ne[1] - left);
    const int64_t n_y = std::min<int64_t>(kOut, dst_->ne[2] - top);
    const int64_t first = work.first_panel * kPanel;
    const int64_t end = std::min(n_out_, first + work.n_panels * kPanel);
    for (int64_t channel = first; channel < end; channel += kLanes) {
        Lanes m[kPoints], lines[kIn * kOut], y[kOut * kOut];
        for (int64_t i = 0; i < kPoints; ++i) {
            m[i] = load(from + i * out_stride_ + channel - first);
        }
        for (int x = 0; x < kIn; ++x) {
            transform_output_line(m + x, kIn, lines + x * kOut);
        }
        for (int row = 0; row < kOut; ++row) {
            transform_output_line(lines + row, kOut, y + row * kOut);
        }
        for (int64_t i = 0; i < n_x * n_y; ++i) {
            const int64_t row = i / n_x;
            const int64_t column = i % n_x;
            write((top + row) * dst_->ne[1] + left + column, channel, y[row * kOut + column]);
        }
    }
}

void Convolution::write(int64_t pixel, int64_t channel, const Lanes& value) {
    const int64_t at = pixel * n_out_ + channel;
    const int64_t n = n_out_ - channel;
    Lanes sum = value + load_some(values(bias_) + channel, n);
    if (skip_ != nullptr) {
        sum += load_some(values(skip_) + at, n);
    }
    store_some(values(dst_) + at, sum, n);
}

void convolve(ggml_tensor* dst, int ith, int nth, void*) {
    Convolution(dst).run(ith, nth);
}

const OwnOperation kTransformFilter = {"cpu transform filter", transform_filter};

}  // namespace

ggml_tensor* winograd_conv(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                           ggml_tensor* skip, int32_t scale) {
    const int64_t n_panels = (filter->ne[3] + kPanel - 1) / kPanel;
    ggml_tensor* panels = g.made_once(filter, [&] {
        return own_node(g, {kTransformFilter, {}, {kPanel, filter->ne[2], n_panels, kPoints}},
                        {filter});
    });
    return own::conv(g, {.x = x, .packed_filter = panels, .bias = bias, .skip = skip},
                     {.size = kTaps, .scale = scale}, {.function = convolve});
}

}  // namespace flux2::cpu
