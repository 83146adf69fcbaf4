// Which sizes pictures may have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flux2 {

// Side of a latent token in pixels; sides of generated images are multiples of it.
constexpr int kImageGrid = 16;
constexpr int kMinSide = 64;
// Requests with sides above this, or with more references, are refused; the error says how much
// memory they would take.
constexpr int kMaxSide = 4096;
constexpr size_t kMaxReferences = 16;
// Longest side of an image that is read or written.
constexpr int kMaxImageSide = 16384;

constexpr bool is_image_side(int64_t side) {
    return side >= kMinSide && side <= kMaxSide && side % kImageGrid == 0;
}

// Largest size of a reference picture in pixels; larger ones are scaled down. These are the limits
// of the reference implementation: a single picture may be larger than each of several.
constexpr int64_t max_reference_pixels(size_t n_references) {
    return n_references == 1 ? 2024 * 2024 : 1024 * 1024;
}

}  // namespace flux2
