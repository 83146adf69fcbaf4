#include "compute/cpu/k_scales.hpp"

#include <ggml.h>

#include <array>
#include <cstring>

namespace flux2::cpu {

// A scale of the scales and one of the minimums in F16, then both in six bits each.
PartScales read_part_scales(const uint8_t* block) {
    std::array<ggml_fp16_t, 2> head;
    std::memcpy(head.data(), block, sizeof(head));
    const float scale = ggml_fp16_to_fp32(head[0]);
    const float least = ggml_fp16_to_fp32(head[1]);
    const uint8_t* q = block + sizeof(head);
    PartScales parts;
    for (int i = 0; i < 4; ++i) {
        parts.scales[i] = scale * static_cast<float>(q[i] & 63);
        parts.offsets[i] = -least * static_cast<float>(q[i + 4] & 63);
        parts.scales[i + 4] = scale * static_cast<float>((q[i + 8] & 15) | q[i] >> 6 << 4);
        parts.offsets[i + 4] = -least * static_cast<float>(q[i + 8] >> 4 | q[i + 4] >> 6 << 4);
    }
    return parts;
}

}  // namespace flux2::cpu
