// The transforms of a convolution after Winograd, and its feature maps in tiles.
// compute/cpu/winograd.hpp has the mathematics.
#pragma once

#include "compute/cpu/instructions.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/feature_map_nodes.hpp"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace flux2::cpu {

constexpr int kTileIn = 6;   // values of a tile's input along one side
constexpr int kTileOut = 4;  // and of its output
constexpr int kTaps = 3;     // of the filter
constexpr int64_t kPoints = kTileIn * kTileIn;

constexpr float kP = 5.0f / 8;
constexpr float kQ = 3.0f / 2;
constexpr float kPP = kP * kP;
constexpr float kQQ = kQ * kQ;

// ---- The transforms of one line of vectors; `step` is the distance of neighbours in the source --

// G g
template <typename Vector>
FLUX2_INLINE void transform_filter_line(const Vector* g, int step, Vector* to) {
    constexpr float kAt0 = 1 / (kPP * kQQ);
    constexpr float kAtP = 1 / (2 * kPP * (kPP - kQQ));
    constexpr float kAtQ = 1 / (2 * kQQ * (kQQ - kPP));
    const Vector &g0 = g[0], &g1 = g[step], &g2 = g[2 * step];
    const Vector even_p = kAtP * g0 + kAtP * kPP * g2;
    const Vector even_q = kAtQ * g0 + kAtQ * kQQ * g2;
    const Vector odd_p = kAtP * kP * g1;
    const Vector odd_q = kAtQ * kQ * g1;
    to[0] = kAt0 * g0;
    to[1] = even_p + odd_p;
    to[2] = even_p - odd_p;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = g2;
}

// B^T d
template <typename Vector>
FLUX2_INLINE void transform_input_line(const Vector* d, int step, Vector* to) {
    const Vector &d0 = d[0], &d1 = d[step], &d2 = d[2 * step], &d3 = d[3 * step], &d4 = d[4 * step],
                 &d5 = d[5 * step];
    const Vector even_p = d4 - kQQ * d2;
    const Vector even_q = d4 - kPP * d2;
    const Vector odd_p = kP * d3 - kP * kQQ * d1;
    const Vector odd_q = kQ * d3 - kQ * kPP * d1;
    to[0] = kPP * kQQ * d0 - (kPP + kQQ) * d2 + d4;
    to[1] = even_p + odd_p;
    to[2] = even_p - odd_p;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = kPP * kQQ * d1 - (kPP + kQQ) * d3 + d5;
}

// A^T m
template <typename Vector>
FLUX2_INLINE void transform_output_line(const Vector* m, int step, Vector* to) {
    const Vector &m1 = m[step], &m2 = m[2 * step], &m3 = m[3 * step], &m4 = m[4 * step];
    const Vector even_p = m1 + m2;
    const Vector even_q = m3 + m4;
    const Vector odd_p = m1 - m2;
    const Vector odd_q = m3 - m4;
    to[0] = m[0] + even_p + even_q;
    to[1] = kP * odd_p + kQ * odd_q;
    to[2] = kPP * even_p + kQQ * even_q;
    to[3] = kP * kPP * odd_p + kQ * kQQ * odd_q + m[5 * step];
}

// ---- The feature maps of a node, in tiles ----

// The results of a tile that exist.
struct TilePlace {
    int64_t left, top, n_x, n_y;
};

class WinogradMaps {
  public:
    explicit WinogradMaps(ggml_tensor* dst)
        : dst_(dst),
          x_(dst->src[0]),
          filter_(dst->src[1]),
          bias_(dst->src[2]),
          skip_(dst->src[3]),
          scale_(params_of<own::ConvParams>(dst).scale),
          n_in_(x_->ne[0]),
          n_out_(dst->ne[0]),
          tiles_across_((dst->ne[1] + kTileOut - 1) / kTileOut),
          n_tiles_(tiles_across_ * ((dst->ne[2] + kTileOut - 1) / kTileOut)),
          zeros_(static_cast<size_t>(n_in_)) {}

  protected:
    // Where the 6x6 input pixels of a tile lie; the border of one pixel is zeros.
    std::array<const float*, kPoints> gather(int64_t tile) const {
        std::array<const float*, kPoints> pixels;
        const int64_t left = tile % tiles_across_ * kTileOut - 1;
        const int64_t top = tile / tiles_across_ * kTileOut - 1;
        for (int64_t i = 0; i < kPoints; ++i) {
            const int64_t x = left + i % kTileIn;
            const int64_t y = top + i / kTileIn;
            const bool inside = x >= 0 && y >= 0 && x < dst_->ne[1] && y < dst_->ne[2];
            pixels[static_cast<size_t>(i)] =
                inside ? values(x_) + (y / scale_ * x_->ne[1] + x / scale_) * n_in_ : zeros_.data();
        }
        return pixels;
    }

    TilePlace place_of(int64_t tile) const {
        const int64_t left = tile % tiles_across_ * kTileOut;
        const int64_t top = tile / tiles_across_ * kTileOut;
        return {left, top, std::min<int64_t>(kTileOut, dst_->ne[1] - left),
                std::min<int64_t>(kTileOut, dst_->ne[2] - top)};
    }

    int64_t first_pixel_of(const TilePlace& place) const {
        return place.top * dst_->ne[1] + place.left;
    }

    ggml_tensor* dst_;  // [out, w, h]
    const ggml_tensor* x_;
    const ggml_tensor* filter_;  // transformed
    const ggml_tensor* bias_;
    const ggml_tensor* skip_;  // may be null
    int64_t scale_, n_in_, n_out_, tiles_across_, n_tiles_;

  private:
    std::vector<float> zeros_;  // a pixel outside the feature map
};

}  // namespace flux2::cpu
