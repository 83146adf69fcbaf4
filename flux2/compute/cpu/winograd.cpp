#include "compute/cpu/winograd.hpp"

#include "compute/cpu/filter.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/cpu/winograd_parts.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstring>
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

// ---- The transforms of a tile, of many channels ----

// The first n floats, at most as many as fit; the rest becomes zeros.
template <typename Vector>
FLUX2_INLINE void read_some(const float* from, int64_t n, Vector& to) {
    if constexpr (kWidth<Vector> == kLanes) {
        to = load_some(from, n);
    } else {
        std::memcpy(&to, from, sizeof(to));
    }
}

template <typename Vector>
FLUX2_INLINE void write_some(float* to, const Vector& from, int64_t n) {
    if constexpr (kWidth<Vector> == kLanes) {
        store_some(to, from, n);
    } else {
        std::memcpy(to, &from, sizeof(from));
    }
}

struct InputTile {
    std::array<const float*, kPoints> pixels;
    int64_t n_channels;
    float* to;  // of the first point
    int64_t point_stride;
};

template <typename Vector>
FLUX2_INLINE void transform_at(const InputTile& tile, int64_t channel) {
    Vector d[kPoints], lines[kPoints], points[kPoints];
    for (size_t i = 0; i < tile.pixels.size(); ++i) {
        read_some(tile.pixels[i] + channel, tile.n_channels - channel, d[i]);
    }
    for (int x = 0; x < kTileIn; ++x) {
        transform_input_line(d + x, kTileIn, lines + x * kTileIn);
    }
    for (int y = 0; y < kTileIn; ++y) {
        transform_input_line(lines + y, kTileIn, points + y * kTileIn);
    }
    for (int64_t i = 0; i < kPoints; ++i) {
        std::memcpy(tile.to + i * tile.point_stride + channel, &points[i], sizeof(Vector));
    }
}

struct OutputTile {
    const float* from;  // of the first point
    int64_t point_stride;
    const float* bias;
    TilePlace place;
    float* to;          // the first pixel's first channel
    const float* skip;  // likewise; may be null
    int64_t row_stride, pixel_stride;
    int64_t n_channels;
};

template <typename Vector>
FLUX2_INLINE void transform_at(const OutputTile& tile, int64_t channel) {
    Vector m[kPoints], lines[kTileIn * kTileOut], y[kTileOut * kTileOut], bias;
    for (int64_t i = 0; i < kPoints; ++i) {
        std::memcpy(&m[i], tile.from + i * tile.point_stride + channel, sizeof(Vector));
    }
    for (int x = 0; x < kTileIn; ++x) {
        transform_output_line(m + x, kTileIn, lines + x * kTileOut);
    }
    for (int row = 0; row < kTileOut; ++row) {
        transform_output_line(lines + row, kTileOut, y + row * kTileOut);
    }
    const int64_t n = tile.n_channels - channel;
    read_some(tile.bias + channel, n, bias);
    for (int64_t row = 0; row < tile.place.n_y; ++row) {
        for (int64_t column = 0; column < tile.place.n_x; ++column) {
            const int64_t at = row * tile.row_stride + column * tile.pixel_stride + channel;
            Vector sum = y[row * kTileOut + column] + bias;
            if (tile.skip != nullptr) {
                Vector skip;
                read_some(tile.skip + at, n, skip);
                sum += skip;
            }
            write_some(tile.to + at, sum, n);
        }
    }
}

// Wide vectors, then Lanes for the last channels.
template <typename Vector, typename Tile>
FLUX2_INLINE void transform_channels(const Tile& tile) {
    constexpr int64_t kWide = kWidth<Vector>;
    int64_t channel = 0;
    if constexpr (kWide > kLanes) {
        for (; channel + kWide <= tile.n_channels; channel += kWide) {
            transform_at<Vector>(tile, channel);
        }
    }
    for (; channel < tile.n_channels; channel += kLanes) {
        transform_at<Lanes>(tile, channel);
    }
}

#if defined(FLUX2_X86)
template <typename Tile>
FLUX2_AVX2 void transform_avx2(const Tile& tile) {
    transform_channels<EightFloats>(tile);
}

template <typename Tile>
FLUX2_AVX512 void transform_avx512(const Tile& tile) {
    transform_channels<SixteenFloats>(tile);
}
#endif

template <typename Tile>
void transform(const Tile& tile) {
#if defined(FLUX2_X86)
    if (has_avx512()) {
        transform_avx512(tile);
        return;
    }
    if (has_avx2()) {
        transform_avx2(tile);
        return;
    }
#endif
    transform_channels<Lanes>(tile);
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

    std::unique_ptr<float[]> input_, output_;  // [36][tile][in], [36][tile][out]
    int64_t in_width_ = 0, in_stride_ = 0;     // of a tile, of a point
    int64_t out_width_ = 0, out_stride_ = 0;
};

constexpr int64_t kLeastTiles = 20;  // of a strip, for which a filter is read

// How many tiles are transformed at once. Of few channels so many that the values stay in the
// second cache; a filter of many does not fit there itself, and is read again for each strip.
int64_t longest_strip(int64_t n_channels) {
    constexpr int64_t kFewChannels = 128;
    constexpr int64_t kShortStrip = 30;
    constexpr int64_t kLongStrip = 120;
    constexpr int64_t kStripFloats = 1 << 20;
    return n_channels <= kFewChannels
               ? kShortStrip
               : std::clamp(kStripFloats / kPoints / n_channels, kLeastTiles, kLongStrip);
}

// Splits the tiles into strips, as many for each thread. Where these would become too short to be
// worth reading the filter for, the output channels are split instead.
void Convolution::run(int nth, void* work) {
    const int64_t n_panels = filter_->ne[2];
    const int64_t most = longest_strip(std::max(n_in_, n_panels * kPanel));
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
    transform(InputTile{
        .pixels = gather(tile), .n_channels = n_in_, .to = to, .point_stride = in_stride_});
}

void Convolution::transform_output(const TileWork& work, int64_t tile, const float* from) {
    const TilePlace place = place_of(tile);
    const int64_t first = work.first_panel * kPanel;
    const int64_t at = first_pixel_of(place) * n_out_ + first;
    transform(OutputTile{.from = from,
                         .point_stride = out_stride_,
                         .bias = values(bias_) + first,
                         .place = place,
                         .to = values(dst_) + at,
                         .skip = skip_ != nullptr ? values(skip_) + at : nullptr,
                         .row_stride = dst_->ne[1] * n_out_,
                         .pixel_stride = n_out_,
                         .n_channels = std::min(n_out_ - first, work.n_panels * kPanel)});
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
