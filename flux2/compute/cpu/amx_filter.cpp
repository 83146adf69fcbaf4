#include "compute/cpu/amx_filter.hpp"

#include "compute/cpu/amx_split.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/filter.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/own_node.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace flux2::cpu {

#if defined(FLUX2_X86)

namespace {

constexpr int64_t kMostTaps = 9;  // positions in a filter

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
    alignas(kCacheLine) std::array<float, kAmxInner * kMostTaps * kVector> turned;
    float* lines = turned.data();  // of the same value of 16 columns
    const int64_t half = kAmxInner / 2 * n_taps;
    for (int64_t first = 0; first < n_in; first += kAmxInner) {
        const int64_t n = std::min(kAmxInner, n_in - first) * n_taps;
        for (int64_t column = 0; column < kVector; ++column) {
            const float* row = rows + (column * n_in + first) * n_taps;
            for (int64_t i = 0; i < n; ++i) {
                lines[i * kVector + column] = row[i];
            }
        }
        std::fill_n(lines + n * kVector, (2 * half - n) * kVector, 0.0f);
        const int64_t tile = first / kAmxInner * n_taps * kAmxTileSize;
        for (int64_t i = 0; i < half; ++i) {
            const SplitLine line = split(load_floats(lines + i * kVector, kVector),
                                         load_floats(lines + (i + half) * kVector, kVector));
            const int64_t at = tile + i % n_taps * kAmxTileSize + i / n_taps * kAmxInner;
            store(rounded + at, line.rounded);
            if (rest != nullptr) {
                store(rest + at, line.rest);
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

const OwnOperation kMakeFilter = {"cpu amx filter", make_filter};

}  // namespace

ggml_tensor* amx_filter(Graph& g, ggml_tensor* filter) {
    const auto* ne = filter->ne;
    const int64_t n_steps = parts_of(ne[2], kAmxInner) * ne[0] * ne[1];
    const int64_t n_pairs = parts_of(ne[3], 2 * kAmxColumns);
    return own_node(g, {kMakeFilter, {GGML_TYPE_BF16}, {kAmxTileSize, 4 * n_steps + 1, n_pairs, 1}},
                    {filter});
}

#else

// Never called: has_amx() is false.
ggml_tensor* amx_filter(Graph&, ggml_tensor*) {
    return nullptr;
}

#endif

}  // namespace flux2::cpu
