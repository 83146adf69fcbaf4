#include "compute/cpu/winograd.hpp"

#include "compute/cpu/filter.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/cpu/winograd_parts.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace flux2::cpu {
namespace {

// ---- First node: the filter, [3, 3, in, out] -> panels [16, in, out / 16, 36] ----

// 16 filters of one input channel. `rows` are the 16 output channels, each 9 values per input.
void transform_filters(const float* rows, int64_t row_size, float* to, int64_t point_stride) {
    for (int64_t first = 0; first < kPanel; first += kLanes) {
        Lanes g[kTaps * kTaps], lines[kTaps * kTileIn], points[kPoints];
        for (int64_t tap = 0; tap < kTaps * kTaps; ++tap) {
            std::array<float, kLanes> taps;
            for (int64_t i = 0; i < kLanes; ++i) {
                taps[static_cast<size_t>(i)] = rows[(first + i) * row_size + tap];
            }
            g[tap] = load(taps.data());
        }
        for (int x = 0; x < kTaps; ++x) {
            transform_filter_line(g + x, kTaps, lines + x * kTileIn);
        }
        for (int y = 0; y < kTileIn; ++y) {
            transform_filter_line(lines + y, kTileIn, points + y * kTileIn);
        }
        for (int64_t point = 0; point < kPoints; ++point) {
            store(to + point * point_stride + first, points[point]);
        }
    }
}

void transform_filter(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* filter = dst->src[0];
    const int64_t n_in = dst->ne[1];
    const int64_t n_panels = dst->ne[2];
    const int64_t row_size = kTaps * kTaps * n_in;
    const auto rows = scratch(kPanel * row_size);
    share_items(work, n_panels, nth, [&](int64_t panel) {
        read_panel(filter, panel, rows.get());
        for (int64_t i = 0; i < n_in; ++i) {
            transform_filters(rows.get() + i * kTaps * kTaps, row_size,
                              values(dst) + (panel * n_in + i) * kPanel, n_panels * n_in * kPanel);
        }
    });
}

// ---- Second node: the convolution ----

// Some tiles and some panels of output channels: the piece of work of one thread at a time.
struct TileWork {
    int64_t first_tile, n_tiles;
    int64_t first_panel, n_panels;
};

class Convolution : WinogradMaps {
  public:
    explicit Convolution(ggml_tensor* dst) : WinogradMaps(dst) {}

    void run(int nth, void* work);

  private:
    // Distances in scratch. A few floats more than the values take, so that the 36 points of a
    // pixel do not compete for the same lines of the cache.
    static constexpr int64_t kGap = 16;

    void run(const TileWork& work);
    void transform_input(int64_t tile, float* to);
    void transform_output(const TileWork& work, int64_t tile, const float* from);
    void write(int64_t pixel, int64_t channel, const Lanes& value);

    std::unique_ptr<float[]> input_, output_;  // [36][tile][in], [36][tile][out]
    int64_t in_width_ = 0, in_stride_ = 0;     // of a tile, of a point
    int64_t out_width_ = 0, out_stride_ = 0;
};

// Splits the tiles into strips whose transformed values stay in the cache, as many for each thread.
// Where these would become too short to be worth reading the filter for, the output channels are
// split instead.
void Convolution::run(int nth, void* work) {
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
    share_items(work, n_strips * n_slices, nth, [&](int64_t i) {
        const int64_t tile = i / n_slices * strip;
        const int64_t panel = i % n_slices * slice;
        const TileWork part{.first_tile = tile,
                            .n_tiles = std::min(strip, n_tiles_ - tile),
                            .first_panel = panel,
                            .n_panels = std::min(slice, n_panels - panel)};
        if (part.n_tiles > 0 && part.n_panels > 0) {
            run(part);
        }
    });
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

void Convolution::transform_input(int64_t tile, float* to) {
    const std::array<const float*, kPoints> pixels = gather(tile);
    for (int64_t channel = 0; channel < n_in_; channel += kLanes) {
        Lanes d[kPoints], lines[kPoints], points[kPoints];
        for (size_t i = 0; i < pixels.size(); ++i) {
            d[i] = load_some(pixels[i] + channel, n_in_ - channel);
        }
        for (int x = 0; x < kTileIn; ++x) {
            transform_input_line(d + x, kTileIn, lines + x * kTileIn);
        }
        for (int y = 0; y < kTileIn; ++y) {
            transform_input_line(lines + y, kTileIn, points + y * kTileIn);
        }
        for (int64_t i = 0; i < kPoints; ++i) {
            store(to + i * in_stride_ + channel, points[i]);
        }
    }
}

void Convolution::transform_output(const TileWork& work, int64_t tile, const float* from) {
    const TilePlace place = place_of(tile);
    const int64_t first = work.first_panel * kPanel;
    const int64_t end = std::min(n_out_, first + work.n_panels * kPanel);
    for (int64_t channel = first; channel < end; channel += kLanes) {
        Lanes m[kPoints], lines[kTileIn * kTileOut], y[kTileOut * kTileOut];
        for (int64_t i = 0; i < kPoints; ++i) {
            m[i] = load(from + i * out_stride_ + channel - first);
        }
        for (int x = 0; x < kTileIn; ++x) {
            transform_output_line(m + x, kTileIn, lines + x * kTileOut);
        }
        for (int row = 0; row < kTileOut; ++row) {
            transform_output_line(lines + row, kTileOut, y + row * kTileOut);
        }
        for (int64_t i = 0; i < place.n_x * place.n_y; ++i) {
            const int64_t row = i / place.n_x;
            const int64_t column = i % place.n_x;
            write(pixel_at(place, row, column), channel, y[row * kTileOut + column]);
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

void convolve(ggml_tensor* dst, int, int nth, void* work) {
    Convolution(dst).run(nth, work);
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
