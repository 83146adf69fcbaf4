// Rows of integers times columns of codes, which are integers too. With AVX2 an instruction
// multiplies 32 bytes and adds their products in pairs, in 16 bits, about twice as fast as F32 is
// multiplied; that holds for codes of up to 5 bits, whose sums do not overflow. Newer x86 CPUs add
// four products each in 32 bits, of codes of up to 8 bits, and Arm CPUs with dot products of up to
// 7. With AVX2 alone codes of 6 to 8 bits are made 16 bits wide, and so are rows: their products
// are added in pairs in 32 bits, one and a half times as fast as F32.
//
// Both go in blocks of 32 values along the inner dimension. A value of a row is scale * code, one
// of a column scale * code + offset; some types have scales and offsets for every 16 values.
// Columns lie in panels of 16; what an instruction takes of a column, a group of four bytes, is
// contiguous.
#pragma once

#include <array>
#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kCodeBlock = 32;  // values
constexpr int64_t kCodeHalf = kCodeBlock / 2;
constexpr int64_t kCodeColumns = 16;  // of a panel
constexpr int64_t kCodeGroup = 4;     // bytes of a column

// ---- Codes of 8 bits ----

struct RowCodes {
    using Code = int8_t;
    float scale;
    std::array<float, 3> sums;  // of the values: of all, of the first 16, of the others
    std::array<Code, kCodeBlock> codes;
};

struct PanelCodes {
    // Of the first 16 values and of the others; where there are no halves, the first are of all.
    std::array<std::array<float, kCodeColumns>, 2> scales, offsets;
    std::array<uint8_t, kCodeBlock * kCodeColumns> codes;  // [32 / 4][16][4]
};

// ---- Codes of 16 bits ----

struct WideRowCodes {
    using Code = int16_t;
    float scale;
    std::array<Code, kCodeBlock> codes;
};

// Without offsets: only types that need none are multiplied so.
struct WidePanelCodes {
    std::array<std::array<float, kCodeColumns>, 2> scales;  // as above
    std::array<int16_t, kCodeBlock * kCodeColumns> codes;   // [32 / 2][16][2]
};

// ---- Their products ----

// Bits that codes may have for this CPU to multiply them faster so than in any other way; 0 where
// there is a faster one. The functions below work on every CPU.
int most_code_bits();
// Whether it multiplies codes of more bits, up to 8, the fastest when they are wide.
bool multiplies_wide_codes();

// n floats, whole blocks, each with the scale of its largest value. A block with an infinite value
// or a NaN gets the scale NaN.
void round_to_codes(const float* from, int64_t n, RowCodes* to);
void round_to_codes(const float* from, int64_t n, WideRowCodes* to);

template <typename Row, typename Panel>
struct CodeProduct {
    const Row* rows;     // n_rows rows of n_blocks
    int64_t row_stride;  // blocks from row to row
    int64_t n_rows, n_blocks;
    const Panel* panels;  // n_panels, each of n_blocks
    int64_t n_panels;
    int bits;        // of the columns' codes, at most 8; of wide ones with a sign
    bool in_halves;  // whether they have scales for every 16 values
    float* results;  // n_rows rows of 16 * n_panels
    int64_t result_stride;
    bool adds;  // to what `results` holds
};

using RowsTimesCodes = CodeProduct<RowCodes, PanelCodes>;
using RowsTimesWideCodes = CodeProduct<WideRowCodes, WidePanelCodes>;

void multiply(const RowsTimesCodes& m);
void multiply(const RowsTimesWideCodes& m);

}  // namespace flux2::cpu
