#include "compute/cpu/direct_conv.hpp"

#include "compute/cpu/filter.hpp"
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/feature_map_nodes.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>

namespace flux2::cpu {
namespace {

constexpr int64_t kStrip = 30;  // pixels at a time
constexpr int64_t kSize = 3;    // of a filter that takes steps of two
constexpr int64_t kStride = 2;

// The 3x3 pixels under result `pixel`, row by row.
void gather(const ggml_tensor* x, int64_t across, int64_t pixel, float* to) {
    const int64_t n_in = x->ne[0];
    const int64_t left = pixel % across * kStride;
    const int64_t top = pixel / across * kStride;
    for (int64_t tap = 0; tap < kSize * kSize; ++tap, to += n_in) {
        const int64_t column = left + tap % kSize;
        const int64_t row = top + tap / kSize;
        if (column < x->ne[1] && row < x->ne[2]) {
            std::copy_n(values(x) + (row * x->ne[1] + column) * n_in, n_in, to);
        } else {
            std::fill_n(to, n_in, 0.0f);
        }
    }
}

// Sums of `n` pixels from `first` on, `width` apart, plus bias and skip.
void finish(ggml_tensor* dst, const float* sums, int64_t width, int64_t first, int64_t n) {
    const float* bias = values(dst->src[2]);
    const ggml_tensor* skip = dst->src[3];
    const int64_t n_out = dst->ne[0];
    for (int64_t pixel = 0; pixel < n; ++pixel) {
        const int64_t at = (first + pixel) * n_out;
        for (int64_t i = 0; i < n_out; ++i) {
            const float before = skip != nullptr ? values(skip)[at + i] : 0.0f;
            values(dst)[at + i] = before + (sums[pixel * width + i] + bias[i]);
        }
    }
}

void convolve(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* x = dst->src[0];
    const ggml_tensor* panels = dst->src[1];
    const int64_t n_inner = panels->ne[1];
    const bool gathers = n_inner != x->ne[0];
    const int64_t n_pixels = dst->ne[1] * dst->ne[2];
    const int64_t width = panels->ne[2] * kPanel;
    const auto sums = scratch(kStrip * width);
    const auto rows = scratch(gathers ? kStrip * n_inner : 0);
    share_items(work, (n_pixels + kStrip - 1) / kStrip, nth, [&](int64_t strip) {
        const int64_t first = strip * kStrip;
        const int64_t n = std::min(kStrip, n_pixels - first);
        for (int64_t i = 0; i < n && gathers; ++i) {
            gather(x, dst->ne[1], first + i, rows.get() + i * n_inner);
        }
        multiply({.a = gathers ? rows.get() : values(x) + first * n_inner,
                  .a_stride = n_inner,
                  .n_rows = n,
                  .n_inner = n_inner,
                  .b = values(panels),
                  .b_stride = n_inner * kPanel,
                  .n_panels = panels->ne[2],
                  .c = sums.get(),
                  .c_stride = width});
        finish(dst, sums.get(), width, first, n);
    });
}

}  // namespace

ggml_tensor* direct_conv(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                         ggml_tensor* skip, int32_t stride) {
    ggml_tensor* packed = g.made_once(filter, [&] { return pack_filter(g, filter); });
    return own::conv(g, {.x = x, .packed_filter = packed, .bias = bias, .skip = skip},
                     {.size = static_cast<int32_t>(filter->ne[0]), .stride = stride},
                     {.function = convolve});
}

}  // namespace flux2::cpu
