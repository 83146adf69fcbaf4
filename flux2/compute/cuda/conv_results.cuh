// How both convolutions on tensor cores begin their sums and write them, two neighbouring channels
// of a pixel at a time: for_pairs(f) calls f(place in y, channel, the two sums) for all that the
// thread holds. `whole`: all of the block's results exist and pairs lie at even places, so nothing
// is checked and the memory accesses run together.
#pragma once

#include "compute/cuda/conv.hpp"

#include <cstdint>

namespace flux2::cuda {

// The sums start as bias + skip: so all of skip is loaded at once, instead of in parts between
// the writes to y, which may be the same memory.
template <bool whole, typename ForPairs>
__device__ void begin_sums(const ConvArgs& a, const ForPairs& for_pairs) {
    const float* skip = static_cast<const float*>(a.skip);
    const half* skip_half = static_cast<const half*>(a.skip);
    for_pairs([&](int64_t at, int channel, float* v) {
        if constexpr (whole) {
            const float2 bias = *reinterpret_cast<const float2*>(a.bias + channel);
            float2 scaled = {0, 0};
            if (a.skip != nullptr && a.skip_is_half) {
                scaled = __half22float2(*reinterpret_cast<const half2*>(skip_half + at));
            } else if (a.skip != nullptr) {
                const float2 plain = *reinterpret_cast<const float2*>(skip + at);
                scaled = {plain.x * kScale, plain.y * kScale};
            }
            v[0] = bias.x * kScale + scaled.x;
            v[1] = bias.y * kScale + scaled.y;
        } else {
            for (int i = 0; i < 2 && channel + i < a.out; ++i) {
                float scaled = 0;
                if (a.skip != nullptr) {
                    scaled =
                        a.skip_is_half ? __half2float(skip_half[at + i]) : skip[at + i] * kScale;
                }
                v[i] = a.bias[channel + i] * kScale + scaled;
            }
        }
    });
}

template <bool whole, typename ForPairs>
__device__ void write_sums(const ConvArgs& a, const ForPairs& for_pairs) {
    float* y = static_cast<float*>(a.y);
    half* y_half = static_cast<half*>(a.y);
    for_pairs([&](int64_t at, int channel, const float* v) {
        if (whole && a.y_is_half) {
            *reinterpret_cast<half2*>(y_half + at) = __floats2half2_rn(v[0], v[1]);
        } else if (whole) {
            *reinterpret_cast<float2*>(y + at) = {v[0] * kUnscale, v[1] * kUnscale};
        } else {
            for (int i = 0; i < 2 && channel + i < a.out; ++i) {
                if (a.y_is_half) {
                    y_half[at + i] = __float2half(v[i]);
                } else {
                    y[at + i] = v[i] * kUnscale;
                }
            }
        }
    });
}

}  // namespace flux2::cuda
