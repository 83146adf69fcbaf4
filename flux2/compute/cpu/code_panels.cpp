#include "compute/cpu/code_panels.hpp"

#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/code_panels_forms.hpp"
#include "compute/cpu/instructions.hpp"
#include "compute/cpu/matrix_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flux2::cpu {
namespace {

// ---- Plain forms ----

// A block's largest magnitude, NaN where a value is infinite or NaN.
float block_size(const float* from) {
    float size = 0;
    bool finite = true;
    for (int64_t i = 0; i < kCodeBlock; ++i) {
        size = std::max(size, std::abs(from[i]));
        finite = finite && std::isfinite(from[i]);
    }
    return finite ? size : std::numeric_limits<float>::quiet_NaN();
}

template <typename Code, size_t n>
void round_values(const float* from, float size, float most, std::array<Code, n>& codes) {
    const float factor = size > kLeastSize ? most / size : 0;  // 0 for NaN
    for (size_t i = 0; i < n; ++i) {
        codes[i] = factor > 0 ? static_cast<Code>(std::nearbyint(from[i] * factor)) : Code{0};
    }
}

void round_block_plain(const float* from, RowCodes& to) {
    const float size = block_size(from);
    to.scale = size / kMostCode;
    round_values(from, size, kMostCode, to.codes);
    std::array<int, 2> totals = {};  // of both halves
    for (size_t i = 0; i < to.codes.size(); ++i) {
        totals[i / kCodeHalf] += to.codes[i];
    }
    to.sums = {to.scale * static_cast<float>(totals[0] + totals[1]),
               to.scale * static_cast<float>(totals[0]), to.scale * static_cast<float>(totals[1])};
}

void round_wide_block_plain(const float* from, WideRowCodes& to) {
    const float size = block_size(from);
    to.scale = size / kMostWideCode;
    round_values(from, size, kMostWideCode, to.codes);
}

// Of codes [first, first + n).
template <typename Row, typename Panel>
int32_t code_product(const Panel& panel, int64_t column, const Row& row, int64_t first, int64_t n) {
    constexpr int64_t kGroup = kCodeGroup / static_cast<int64_t>(sizeof(typename Row::Code));
    int32_t sum = 0;
    for (int64_t i = first; i < first + n; ++i) {
        const int64_t at = (i / kGroup * kCodeColumns + column) * kGroup + i % kGroup;
        sum += panel.codes[static_cast<size_t>(at)] * row.codes[static_cast<size_t>(i)];
    }
    return sum;
}

float offset_product(const PanelCodes& panel, size_t part, size_t column, const RowCodes& row,
                     bool in_halves) {
    return panel.offsets[part][column] * row.sums[in_halves ? part + 1 : 0];
}

float offset_product(const WidePanelCodes&, size_t, size_t, const WideRowCodes&, bool) {
    return 0;
}

template <typename Row, typename Panel>
void multiply_panel_plain(const CodeProduct<Row, Panel>& m, const Panel* panel, float* to) {
    const size_t n_parts = m.in_halves ? 2 : 1;
    const int64_t n = kCodeBlock / static_cast<int64_t>(n_parts);
    for (int64_t i = 0; i < m.n_rows * kCodeColumns; ++i) {
        const int64_t row = i / kCodeColumns;
        const auto column = static_cast<size_t>(i % kCodeColumns);
        float& result = to[row * m.result_stride + i % kCodeColumns];
        float sum = m.adds ? result : 0;
        for (int64_t block = 0; block < m.n_blocks; ++block) {
            const Panel& w = panel[block];
            const Row& x = m.rows[row * m.row_stride + block];
            for (size_t part = 0; part < n_parts; ++part) {
                const auto first = static_cast<int64_t>(part) * n;
                sum += static_cast<float>(code_product(w, i % kCodeColumns, x, first, n)) *
                       (w.scales[part][column] * x.scale);
                sum += offset_product(w, part, column, x, m.in_halves);
            }
        }
        result = sum;
    }
}

// ---- The form for this CPU ----

struct Form {
    int most_bits;  // of codes of 8 bits that it multiplies
    void (*round_block)(const float* from, RowCodes& to);
    void (*multiply_panel)(const RowsTimesCodes& m, const PanelCodes* panel, float* to);
};

constexpr Form kPlain = {8, round_block_plain, multiply_panel_plain<RowCodes, PanelCodes>};

struct WideForm {
    void (*round_block)(const float* from, WideRowCodes& to);
    void (*multiply_panel)(const RowsTimesWideCodes& m, const WidePanelCodes* panel, float* to);
};

constexpr WideForm kWidePlain = {round_wide_block_plain,
                                 multiply_panel_plain<WideRowCodes, WidePanelCodes>};

#if defined(FLUX2_X86)

constexpr Form kAvx2 = {5, round_block_avx2, multiply_panel_avx2};
constexpr Form kAvxVnni = {8, round_block_avx2, multiply_panel_avx_vnni};
constexpr Form kAvx512Vnni = {8, round_block_avx2, multiply_panel_avx512_vnni};
constexpr WideForm kWideAvx2 = {round_wide_block_avx2, multiply_wide_panel_avx2};

// The best one that this CPU has, null without AVX2.
const Form* best_form() {
    if (!has_avx2()) {
        return nullptr;
    }
    if (has_avx512_vnni()) {
        return &kAvx512Vnni;
    }
    return has_avx_vnni() ? &kAvxVnni : &kAvx2;
}

const WideForm& wide_form() {
    return has_avx2() ? kWideAvx2 : kWidePlain;
}

// AMX, and AVX-512 without instructions for integers, are faster in other ways.
bool has_faster_way() {
    return has_amx() || (best_form() == &kAvx2 && has_avx512());
}

bool best_form_adds_in_16_bits() {
    return best_form() == &kAvx2;
}

#else

constexpr Form kArm = {7, round_block_arm, multiply_panel_arm};

// Null without dot products.
const Form* best_form() {
    return has_arm_dot() ? &kArm : nullptr;
}

const WideForm& wide_form() {
    return kWidePlain;
}

bool has_faster_way() {
    return has_matrix_tiles();
}

bool best_form_adds_in_16_bits() {
    return false;
}

#endif

const Form& form_for(int bits) {
    const Form* best = best_form();
    return best != nullptr && bits <= best->most_bits ? *best : kPlain;
}

}  // namespace

int most_code_bits() {
    const Form* best = best_form();
    return best == nullptr || has_faster_way() ? 0 : best->most_bits;
}

bool multiplies_wide_codes() {
    return best_form_adds_in_16_bits() && !has_faster_way();
}

void round_to_codes(const float* from, int64_t n, RowCodes* to) {
    const auto round_block = form_for(/*bits=*/0).round_block;
    for (int64_t i = 0; i < n; i += kCodeBlock, ++to) {
        round_block(from + i, *to);
    }
}

void round_to_codes(const float* from, int64_t n, WideRowCodes* to) {
    const auto round_block = wide_form().round_block;
    for (int64_t i = 0; i < n; i += kCodeBlock, ++to) {
        round_block(from + i, *to);
    }
}

void multiply(const RowsTimesCodes& m) {
    const auto multiply_panel = form_for(m.bits).multiply_panel;
    for (int64_t i = 0; i < m.n_panels; ++i) {
        multiply_panel(m, m.panels + i * m.n_blocks, m.results + i * kCodeColumns);
    }
}

void multiply(const RowsTimesWideCodes& m) {
    const auto multiply_panel = wide_form().multiply_panel;
    for (int64_t i = 0; i < m.n_panels; ++i) {
        multiply_panel(m, m.panels + i * m.n_blocks, m.results + i * kCodeColumns);
    }
}

}  // namespace flux2::cpu
