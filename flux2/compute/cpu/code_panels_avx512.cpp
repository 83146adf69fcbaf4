#include "compute/cpu/code_panels_forms.hpp"

#if defined(FLUX2_X86)

#include "base/system.hpp"
#include "compute/cpu/x86_intrinsics.hpp"

#include <cstddef>
#include <cstring>
#include <span>

#define FLUX2_AVX512_VNNI __attribute__((target("avx512f,avx512vnni")))

namespace flux2::cpu {
namespace {

constexpr int64_t kGroups = kCodeBlock / kCodeGroup;
constexpr int64_t kBytes = kCodeColumns * kCodeGroup;  // of a group of a panel

// Products of n rows and 16 columns, added up. Rows are chains of members, since GCC keeps small
// arrays in memory, not in registers.
template <int n>
struct Sums {
    __m512i row = {};
    Sums<n - 1> rest;

    // One group of the columns, whose codes are w, and of each row.
    FLUX2_AVX512_VNNI FLUX2_INLINE void add(const __m512i& w, const RowCodes* x, int64_t stride,
                                            int64_t group) {
        int32_t four;
        std::memcpy(&four, x->codes.data() + group * kCodeGroup, sizeof(four));
        row = _mm512_dpbusd_epi32(row, w, _mm512_set1_epi32(four));
        rest.add(w, x + stride, stride, group);
    }
};

template <>
struct Sums<0> {
    FLUX2_AVX512_VNNI FLUX2_INLINE void add(const __m512i&, const RowCodes*, int64_t, int64_t) {}
};

// Results of n rows and 16 columns.
template <int n>
struct Results {
    __m512 row = {};
    Results<n - 1> rest;

    FLUX2_AVX512_VNNI FLUX2_INLINE void read(const float* from, int64_t stride) {
        row = _mm512_loadu_ps(from);
        rest.read(from + stride, stride);
    }
    FLUX2_AVX512_VNNI FLUX2_INLINE void write(float* to, int64_t stride) const {
        _mm512_storeu_ps(to, row);
        rest.write(to + stride, stride);
    }
    // `part`: of the rows' sums.
    FLUX2_AVX512_VNNI FLUX2_INLINE void add(const Sums<n>& sums, const __m512& scales,
                                            const __m512& offsets, const RowCodes* x,
                                            int64_t stride, size_t part) {
        row = _mm512_fmadd_ps(offsets, _mm512_set1_ps(x->sums[part]), row);
        row = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.row),
                              _mm512_mul_ps(scales, _mm512_set1_ps(x->scale)), row);
        rest.add(sums.rest, scales, offsets, x + stride, stride, part);
    }
};

template <>
struct Results<0> {
    FLUX2_AVX512_VNNI FLUX2_INLINE void read(const float*, int64_t) {}
    FLUX2_AVX512_VNNI FLUX2_INLINE void write(float*, int64_t) const {}
    FLUX2_AVX512_VNNI FLUX2_INLINE void add(const Sums<0>&, const __m512&, const __m512&,
                                            const RowCodes*, int64_t, size_t) {}
};

// n rows from `row` on times a panel whose blocks have so many scales.
template <int64_t n_scales, int n>
FLUX2_AVX512_VNNI void multiply_rows(const RowsTimesCodes& m, const PanelCodes* panel, int64_t row,
                                     float* to) {
    const RowCodes* x = m.rows + row * m.row_stride;
    float* first = to + row * m.result_stride;
    Results<n> results;
    if (m.adds) {
        results.read(first, m.result_stride);
    }
    for (const PanelCodes& w : std::span(panel, static_cast<size_t>(m.n_blocks))) {
#pragma GCC unroll 2
        for (int64_t part = 0; part < n_scales; ++part) {
            Sums<n> sums;
#pragma GCC unroll 8
            for (int64_t i = 0; i < kGroups / n_scales; ++i) {
                const int64_t group = part * (kGroups / n_scales) + i;
                sums.add(_mm512_loadu_si512(w.codes.data() + group * kBytes), x, m.row_stride,
                         group);
            }
            const auto at = static_cast<size_t>(part);
            results.add(sums, _mm512_loadu_ps(w.scales[at].data()),
                        _mm512_loadu_ps(w.offsets[at].data()), x, m.row_stride,
                        n_scales == 1 ? 0 : at + 1);
        }
        ++x;
    }
    results.write(first, m.result_stride);
}

// The last rows, fewer than `most`.
template <int64_t n_scales, int most>
FLUX2_AVX512_VNNI void multiply_rest(const RowsTimesCodes& m, const PanelCodes* panel, int64_t row,
                                     float* to) {
    if constexpr (most > 1) {
        if (m.n_rows - row == most - 1) {
            multiply_rows<n_scales, most - 1>(m, panel, row, to);
        } else {
            multiply_rest<n_scales, most - 1>(m, panel, row, to);
        }
    }
}

template <int64_t n_scales>
FLUX2_AVX512_VNNI void multiply_all_rows(const RowsTimesCodes& m, const PanelCodes* panel,
                                         float* to) {
    constexpr int64_t kRows = 12;  // whose sums and results are in registers
    int64_t row = 0;
    for (; row + kRows <= m.n_rows; row += kRows) {
        multiply_rows<n_scales, kRows>(m, panel, row, to);
    }
    multiply_rest<n_scales, kRows>(m, panel, row, to);
}

}  // namespace

bool has_avx512_vnni() {
    return process_may_use_vnni() && has_avx512() && __builtin_cpu_supports("avx512vnni");
}

FLUX2_AVX512_VNNI void multiply_panel_avx512_vnni(const RowsTimesCodes& m, const PanelCodes* panel,
                                                  float* to) {
    if (m.in_halves) {
        multiply_all_rows<2>(m, panel, to);
    } else {
        multiply_all_rows<1>(m, panel, to);
    }
}

}  // namespace flux2::cpu

#endif
