// Rows of quantised matrices as columns of compute/cpu/code_panels, exactly: their codes, and a
// scale and an offset for every 32, or every 16.
#pragma once

#include "compute/cpu/code_panels.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::cpu {

// 0 for types that are no such codes.
int code_bits(ggml_type type);
// Whether it has scales for every 16 values.
bool has_half_scales(ggml_type type);

// n values of a row as files have it, whole blocks of the type, into column `column` of a panel.
void read_codes(ggml_type type, const void* blocks, int64_t n, PanelCodes* panel, int64_t column);

// The same in 16 bits, with a sign. Only Q6_K and Q8_0.
bool has_wide_codes(ggml_type type);
void read_codes(ggml_type type, const void* blocks, int64_t n, WidePanelCodes* panel,
                int64_t column);

}  // namespace flux2::cpu
