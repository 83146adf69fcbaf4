// Which sizes pictures may have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flux2 {

constexpr int kImageGrid = 16;  // pixels a side of a latent token; sides are multiples of it
constexpr int kMinSide = 64;
constexpr int kMaxSide = 4096;

constexpr bool is_image_side(int64_t side) {
    return side >= kMinSide && side <= kMaxSide && side % kImageGrid == 0;
}

// What a reference picture is shrunk to. The reference's limits: one may be larger than several.
constexpr int64_t max_reference_pixels(size_t n_references) {
    return n_references == 1 ? 2024 * 2024 : 1024 * 1024;
}

}  // namespace flux2
