// Scales of the types Q4_K and Q5_K.
#pragma once

#include <cstdint>

namespace flux2::cpu {

// Of the eight parts of a block, 32 values each: a value is scale * code + offset.
struct PartScales {
    float scales[8], offsets[8];
};

PartScales read_part_scales(const uint8_t* block);

}  // namespace flux2::cpu
