// Forms of compute/cpu/code_panels for the instructions of newer CPUs.
#pragma once

#include "compute/cpu/code_panels.hpp"
#include "compute/cpu/instructions.hpp"

namespace flux2::cpu {

constexpr float kMostCode = 127;  // of a row
constexpr float kMostWideCode = 32767;
constexpr float kLeastSize = 1e-30f;  // of a block that is not all zeros

#if defined(FLUX2_X86)

// Instructions that multiply bytes and add four products each to a sum in 32 bits: with vectors of
// 256 bits, and of 512.
bool has_avx_vnni();
bool has_avx512_vnni();

// With AVX2.
void round_block_avx2(const float* from, RowCodes& to);
void round_wide_block_avx2(const float* from, WideRowCodes& to);
// With AVX2, codes of up to 5 bits: products are added in 16 bits.
void multiply_panel_avx2(const RowsTimesCodes& m, const PanelCodes* panel, float* to);
void multiply_wide_panel_avx2(const RowsTimesWideCodes& m, const WidePanelCodes* panel, float* to);
// Codes of up to 8 bits.
void multiply_panel_avx_vnni(const RowsTimesCodes& m, const PanelCodes* panel, float* to);
void multiply_panel_avx512_vnni(const RowsTimesCodes& m, const PanelCodes* panel, float* to);

#endif

// Arm's instructions that multiply bytes and add four products each to a sum in 32 bits.
bool has_arm_dot();

void round_block_arm(const float* from, RowCodes& to);
// Codes of up to 7 bits: the instruction takes both factors with a sign.
void multiply_panel_arm(const RowsTimesCodes& m, const PanelCodes* panel, float* to);

}  // namespace flux2::cpu
