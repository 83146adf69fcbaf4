#include "compute/cpu/code_panels_forms.hpp"

#include "base/system.hpp"

// The build compiles this file for CPUs that have the instructions, so nothing here may run on
// others but has_arm_dot(), and no inline function of a library may be emitted here: the linker
// might take it for all.
#if defined(__ARM_FEATURE_DOTPROD)
#define FLUX2_ARM_DOT 1
#include <arm_neon.h>
#endif

namespace flux2::cpu {

#if defined(FLUX2_ARM_DOT)

namespace {

constexpr int64_t kVector = 4;                         // 32-bit values
constexpr int64_t kBytes = kCodeColumns * kCodeGroup;  // of a group of a panel
constexpr int kGroupsOfHalf = kCodeHalf / kCodeGroup;

// ---- x -> codes ----

struct FourVectors {
    float32x4_t x0, x1, x2, x3;

    explicit FourVectors(const float* from)
        : x0(vld1q_f32(from)),
          x1(vld1q_f32(from + kVector)),
          x2(vld1q_f32(from + 2 * kVector)),
          x3(vld1q_f32(from + 3 * kVector)) {}

    float32x4_t magnitudes() const {
        return vmaxq_f32(vmaxq_f32(vabsq_f32(x0), vabsq_f32(x1)),
                         vmaxq_f32(vabsq_f32(x2), vabsq_f32(x3)));
    }
    // 0, or NaN where a value is infinite or NaN.
    float times_zero() const {
        return vaddvq_f32(vaddq_f32(vaddq_f32(vmulq_n_f32(x0, 0), vmulq_n_f32(x1, 0)),
                                    vaddq_f32(vmulq_n_f32(x2, 0), vmulq_n_f32(x3, 0))));
    }
    int8x16_t codes(float factor) const {
        const auto rounded = [&](float32x4_t x) {
            return vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(x, factor)));
        };
        return vcombine_s8(vqmovn_s16(vcombine_s16(rounded(x0), rounded(x1))),
                           vqmovn_s16(vcombine_s16(rounded(x2), rounded(x3))));
    }
};

}  // namespace

void round_block_arm(const float* from, RowCodes& to) {
    const FourVectors first(from);
    const FourVectors second(from + kCodeHalf);
    const float size = vmaxvq_f32(vmaxq_f32(first.magnitudes(), second.magnitudes()));
    const float odd = first.times_zero() + second.times_zero();
    const bool finite = odd == odd;
    const float factor = size > kLeastSize ? kMostCode / size : 0;
    const int8x16_t first_codes = first.codes(factor);
    const int8x16_t second_codes = second.codes(factor);
    auto* codes = reinterpret_cast<int8_t*>(&to.codes);
    vst1q_s8(codes, first_codes);
    vst1q_s8(codes + kCodeHalf, second_codes);
    to.scale = finite ? size / kMostCode : __builtin_nanf("");
    auto* sums = reinterpret_cast<float*>(&to.sums);
    const int first_total = vaddlvq_s8(first_codes);
    const int second_total = vaddlvq_s8(second_codes);
    sums[0] = to.scale * static_cast<float>(first_total + second_total);
    sums[1] = to.scale * static_cast<float>(first_total);
    sums[2] = to.scale * static_cast<float>(second_total);
}

// ---- Rows times panels ----

namespace {

// 16 columns.
template <typename Vector>
struct Columns {
    Vector c0 = {}, c1 = {}, c2 = {}, c3 = {};
};

FLUX2_INLINE Columns<float32x4_t> read(const float* from) {
    return {vld1q_f32(from), vld1q_f32(from + kVector), vld1q_f32(from + 2 * kVector),
            vld1q_f32(from + 3 * kVector)};
}

// A group of a panel.
FLUX2_INLINE Columns<int8x16_t> read(const int8_t* codes) {
    return {vld1q_s8(codes), vld1q_s8(codes + kBytes / 4), vld1q_s8(codes + kBytes / 2),
            vld1q_s8(codes + 3 * kBytes / 4)};
}

// Codes of half a block of n rows. Rows are chains of members, since GCC keeps small arrays in
// memory, not in registers.
template <int n>
struct Rows {
    int8x16_t codes;
    Rows<n - 1> rest;

    FLUX2_INLINE void read(const RowCodes* row, int64_t stride, int64_t first) {
        codes = vld1q_s8(reinterpret_cast<const int8_t*>(&row->codes) + first);
        rest.read(row + stride, stride, first);
    }
};

template <>
struct Rows<0> {
    FLUX2_INLINE void read(const RowCodes*, int64_t, int64_t) {}
};

// Products of n rows and 16 columns, added up.
template <int n>
struct Sums {
    Columns<int32x4_t> row;
    Sums<n - 1> rest;

    // One group of the columns and of each row.
    template <int group>
    FLUX2_INLINE void add(const Columns<int8x16_t>& w, const Rows<n>& x) {
        row.c0 = vdotq_laneq_s32(row.c0, w.c0, x.codes, group);
        row.c1 = vdotq_laneq_s32(row.c1, w.c1, x.codes, group);
        row.c2 = vdotq_laneq_s32(row.c2, w.c2, x.codes, group);
        row.c3 = vdotq_laneq_s32(row.c3, w.c3, x.codes, group);
        rest.template add<group>(w, x.rest);
    }
};

template <>
struct Sums<0> {
    template <int group>
    FLUX2_INLINE void add(const Columns<int8x16_t>&, const Rows<0>&) {}
};

// Results of n rows and 16 columns.
template <int n>
struct Results {
    Columns<float32x4_t> row;
    Results<n - 1> rest;

    FLUX2_INLINE void read_rows(const float* from, int64_t stride) {
        row = read(from);
        rest.read_rows(from + stride, stride);
    }
    FLUX2_INLINE void write(float* to, int64_t stride) const {
        vst1q_f32(to, row.c0);
        vst1q_f32(to + kVector, row.c1);
        vst1q_f32(to + 2 * kVector, row.c2);
        vst1q_f32(to + 3 * kVector, row.c3);
        rest.write(to + stride, stride);
    }
    FLUX2_INLINE void add(const Sums<n>& sums, const Columns<float32x4_t>& scales,
                          const RowCodes* x, int64_t stride) {
        const float scale = x->scale;
        row.c0 = vfmaq_f32(row.c0, vcvtq_f32_s32(sums.row.c0), vmulq_n_f32(scales.c0, scale));
        row.c1 = vfmaq_f32(row.c1, vcvtq_f32_s32(sums.row.c1), vmulq_n_f32(scales.c1, scale));
        row.c2 = vfmaq_f32(row.c2, vcvtq_f32_s32(sums.row.c2), vmulq_n_f32(scales.c2, scale));
        row.c3 = vfmaq_f32(row.c3, vcvtq_f32_s32(sums.row.c3), vmulq_n_f32(scales.c3, scale));
        rest.add(sums.rest, scales, x + stride, stride);
    }
    // `part`: of the rows' sums.
    FLUX2_INLINE void add_offsets(const Columns<float32x4_t>& offsets, const RowCodes* x,
                                  int64_t stride, int64_t part) {
        const float sum = reinterpret_cast<const float*>(&x->sums)[part];
        row.c0 = vfmaq_n_f32(row.c0, offsets.c0, sum);
        row.c1 = vfmaq_n_f32(row.c1, offsets.c1, sum);
        row.c2 = vfmaq_n_f32(row.c2, offsets.c2, sum);
        row.c3 = vfmaq_n_f32(row.c3, offsets.c3, sum);
        rest.add_offsets(offsets, x + stride, stride, part);
    }
};

template <>
struct Results<0> {
    FLUX2_INLINE void read_rows(const float*, int64_t) {}
    FLUX2_INLINE void write(float*, int64_t) const {}
    FLUX2_INLINE void add(const Sums<0>&, const Columns<float32x4_t>&, const RowCodes*, int64_t) {}
    FLUX2_INLINE void add_offsets(const Columns<float32x4_t>&, const RowCodes*, int64_t, int64_t) {}
};

// Products of half a block.
template <int n>
FLUX2_INLINE void add_half(const PanelCodes& w, const RowCodes* x, int64_t stride, int64_t half,
                           Sums<n>& sums) {
    static_assert(kGroupsOfHalf == 4);
    const auto* codes = reinterpret_cast<const int8_t*>(&w.codes) + half * kGroupsOfHalf * kBytes;
    Rows<n> rows;
    rows.read(x, stride, half * kCodeHalf);
    sums.template add<0>(read(codes), rows);
    sums.template add<1>(read(codes + kBytes), rows);
    sums.template add<2>(read(codes + 2 * kBytes), rows);
    sums.template add<3>(read(codes + 3 * kBytes), rows);
}

// n rows from `row` on times a panel.
template <bool in_halves, int n>
void multiply_rows(const RowsTimesCodes& m, const PanelCodes* panel, int64_t row, float* to) {
    const RowCodes* x = m.rows + row * m.row_stride;
    const int64_t stride = m.row_stride;
    to += row * m.result_stride;
    Results<n> results;
    if (m.adds) {
        results.read_rows(to, m.result_stride);
    }
    for (int64_t block = 0; block < m.n_blocks; ++block, ++x) {
        const PanelCodes& w = panel[block];
        const auto add = [&](const Sums<n>& sums, int64_t half) {
            const int64_t at = half * kCodeColumns;
            results.add(sums, read(reinterpret_cast<const float*>(&w.scales) + at), x, stride);
            results.add_offsets(read(reinterpret_cast<const float*>(&w.offsets) + at), x, stride,
                                in_halves ? half + 1 : 0);
        };
        Sums<n> sums;
        add_half(w, x, stride, 0, sums);
        if constexpr (in_halves) {
            add(sums, 0);
            sums = {};
        }
        add_half(w, x, stride, 1, sums);
        add(sums, in_halves ? 1 : 0);
    }
    results.write(to, m.result_stride);
}

template <bool in_halves>
void multiply_all_rows(const RowsTimesCodes& m, const PanelCodes* panel, float* to) {
    constexpr int64_t kRows = in_halves ? 2 : 3;  // whose sums and results are in registers
    int64_t row = 0;
    for (; row + kRows <= m.n_rows; row += kRows) {
        multiply_rows<in_halves, kRows>(m, panel, row, to);
    }
    for (; row < m.n_rows; ++row) {
        multiply_rows<in_halves, 1>(m, panel, row, to);
    }
}

}  // namespace

bool has_arm_dot() {
    static const bool has = cpu_has_dot_products();
    return has;
}

void multiply_panel_arm(const RowsTimesCodes& m, const PanelCodes* panel, float* to) {
    if (m.in_halves) {
        multiply_all_rows<true>(m, panel, to);
    } else {
        multiply_all_rows<false>(m, panel, to);
    }
}

#else

bool has_arm_dot() {
    return false;
}

// Never called: has_arm_dot() is false.

void round_block_arm(const float*, RowCodes&) {}

void multiply_panel_arm(const RowsTimesCodes&, const PanelCodes*, float*) {}

#endif

}  // namespace flux2::cpu
