#include "compute/cpu/code_panels_forms.hpp"

#if defined(FLUX2_X86)

#include "base/system.hpp"

#include <cpuid.h>
#include <immintrin.h>

#include <cstddef>
#include <cstring>
#include <limits>

namespace flux2::cpu {
namespace {

constexpr int64_t kVector = 8;  // 32-bit values
constexpr int64_t kGroups = kCodeBlock / kCodeGroup;
constexpr int64_t kWideGroups = 2 * kGroups;

// ---- x -> codes ----

FLUX2_AVX2 FLUX2_INLINE float largest(__m256 x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

FLUX2_AVX2 FLUX2_INLINE int32_t total(__m256i x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

// A block in steps, of which its largest value has `most`.
struct RoundedBlock {
    __m256i i0, i1, i2, i3;
    float step;  // NaN where a value is infinite or NaN
};

FLUX2_AVX2 FLUX2_INLINE RoundedBlock round_block(const float* from, float most) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 x0 = _mm256_loadu_ps(from);
    const __m256 x1 = _mm256_loadu_ps(from + kVector);
    const __m256 x2 = _mm256_loadu_ps(from + 2 * kVector);
    const __m256 x3 = _mm256_loadu_ps(from + 3 * kVector);
    const float size = largest(
        _mm256_max_ps(_mm256_max_ps(_mm256_and_ps(x0, magnitude), _mm256_and_ps(x1, magnitude)),
                      _mm256_max_ps(_mm256_and_ps(x2, magnitude), _mm256_and_ps(x3, magnitude))));
    // NaN where a value is infinite or NaN, else 0.
    const __m256 zero = _mm256_setzero_ps();
    const __m256 odd =
        _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(x0, zero), _mm256_mul_ps(x1, zero)),
                      _mm256_add_ps(_mm256_mul_ps(x2, zero), _mm256_mul_ps(x3, zero)));
    const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(odd, odd, _CMP_UNORD_Q)) == 0;
    const __m256 factor = _mm256_set1_ps(size > kLeastSize ? most / size : 0);
    return {_mm256_cvtps_epi32(_mm256_mul_ps(x0, factor)),
            _mm256_cvtps_epi32(_mm256_mul_ps(x1, factor)),
            _mm256_cvtps_epi32(_mm256_mul_ps(x2, factor)),
            _mm256_cvtps_epi32(_mm256_mul_ps(x3, factor)),
            finite ? size / most : std::numeric_limits<float>::quiet_NaN()};
}

}  // namespace

FLUX2_AVX2 void round_block_avx2(const float* from, RowCodes& to) {
    const RoundedBlock x = round_block(from, kMostCode);
    // Packing goes by halves of the vectors.
    const __m256i bytes = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(x.i0, x.i1), _mm256_packs_epi32(x.i2, x.i3)),
        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    std::memcpy(to.codes.data(), &bytes, sizeof(bytes));
    to.scale = x.step;
    const auto sum_of = [&](const __m256i& codes)
                            FLUX2_AVX2 { return to.scale * static_cast<float>(total(codes)); };
    const __m256i first = _mm256_add_epi32(x.i0, x.i1);
    const __m256i second = _mm256_add_epi32(x.i2, x.i3);
    to.sums = {sum_of(_mm256_add_epi32(first, second)), sum_of(first), sum_of(second)};
}

FLUX2_AVX2 void round_wide_block_avx2(const float* from, WideRowCodes& to) {
    constexpr int kHalvesInOrder = 0xd8;  // packing goes by halves of the vectors
    const RoundedBlock x = round_block(from, kMostWideCode);
    const __m256i first = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.i0, x.i1), kHalvesInOrder);
    const __m256i second = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.i2, x.i3), kHalvesInOrder);
    std::memcpy(to.codes.data(), &first, sizeof(first));
    std::memcpy(to.codes.data() + kCodeHalf, &second, sizeof(second));
    to.scale = x.step;
}

// ---- Rows times panels ----

namespace {

// How products are added up.
enum class Adds {
    pairs,       // two each, in 16 bits
    wide_pairs,  // two each of 16-bit codes, in 32 bits
    fours,       // four each, in 32 bits (AVX-VNNI)
};

// Products of n rows and 16 columns, added up. Rows are chains of members, since GCC keeps small
// arrays in memory, not in registers.
template <Adds adds, int n>
struct Sums {
    __m256i first = {}, second = {};  // 8 columns each
    Sums<adds, n - 1> rest;

    // One group of the columns, whose codes are w0 and w1, and of each row.
    template <typename Row>
    FLUX2_AVX2 FLUX2_INLINE void add(const __m256i& w0, const __m256i& w1, const Row* row,
                                     int64_t stride, int64_t group) {
        constexpr int64_t kCodes = kCodeGroup / static_cast<int64_t>(sizeof(typename Row::Code));
        int32_t bytes;
        std::memcpy(&bytes, row->codes.data() + group * kCodes, sizeof(bytes));
        const __m256i x = _mm256_set1_epi32(bytes);
        if constexpr (adds == Adds::fours) {
            // Not an intrinsic, which all functions around would need AVX-VNNI for.
            asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(first) : "x"(w0), "x"(x));
            asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(second) : "x"(w1), "x"(x));
        } else {
            if constexpr (adds == Adds::wide_pairs) {
                first = _mm256_add_epi32(first, _mm256_madd_epi16(w0, x));
                second = _mm256_add_epi32(second, _mm256_madd_epi16(w1, x));
            } else {
                first = _mm256_add_epi16(first, _mm256_maddubs_epi16(w0, x));
                second = _mm256_add_epi16(second, _mm256_maddubs_epi16(w1, x));
            }
            // In the order of the groups: compilers would multiply all of them first, for which
            // there are not enough registers.
            asm("" : "+x"(first), "+x"(second));
        }
        rest.add(w0, w1, row + stride, stride, group);
    }

    FLUX2_AVX2 static FLUX2_INLINE __m256 to_floats(const __m256i& sums) {
        return _mm256_cvtepi32_ps(
            adds == Adds::pairs ? _mm256_madd_epi16(sums, _mm256_set1_epi16(1)) : sums);
    }
};

template <Adds adds>
struct Sums<adds, 0> {
    template <typename Row>
    FLUX2_AVX2 FLUX2_INLINE void add(const __m256i&, const __m256i&, const Row*, int64_t, int64_t) {
    }
};

// Results of n rows and 16 columns.
template <int n>
struct Results {
    __m256 first = {}, second = {};
    Results<n - 1> rest;

    FLUX2_AVX2 FLUX2_INLINE void read(const float* from, int64_t stride) {
        first = _mm256_loadu_ps(from);
        second = _mm256_loadu_ps(from + kVector);
        rest.read(from + stride, stride);
    }
    FLUX2_AVX2 FLUX2_INLINE void write(float* to, int64_t stride) const {
        _mm256_storeu_ps(to, first);
        _mm256_storeu_ps(to + kVector, second);
        rest.write(to + stride, stride);
    }
    template <Adds adds, typename Row>
    FLUX2_AVX2 FLUX2_INLINE void add(const Sums<adds, n>& sums, const float* scales, const Row* row,
                                     int64_t stride) {
        const __m256 scale = _mm256_set1_ps(row->scale);
        first = _mm256_fmadd_ps(sums.to_floats(sums.first),
                                _mm256_mul_ps(_mm256_loadu_ps(scales), scale), first);
        second = _mm256_fmadd_ps(sums.to_floats(sums.second),
                                 _mm256_mul_ps(_mm256_loadu_ps(scales + kVector), scale), second);
        rest.add(sums.rest, scales, row + stride, stride);
    }
    // `part`: of the rows' sums.
    FLUX2_AVX2 FLUX2_INLINE void add_offsets(const float* offsets, const RowCodes* row,
                                             int64_t stride, size_t part) {
        const __m256 sum = _mm256_set1_ps(row->sums[part]);
        first = _mm256_fmadd_ps(_mm256_loadu_ps(offsets), sum, first);
        second = _mm256_fmadd_ps(_mm256_loadu_ps(offsets + kVector), sum, second);
        rest.add_offsets(offsets, row + stride, stride, part);
    }
};

template <>
struct Results<0> {
    FLUX2_AVX2 FLUX2_INLINE void read(const float*, int64_t) {}
    FLUX2_AVX2 FLUX2_INLINE void write(float*, int64_t) const {}
    template <Adds adds, typename Row>
    FLUX2_AVX2 FLUX2_INLINE void add(const Sums<adds, 0>&, const float*, const Row*, int64_t) {}
    FLUX2_AVX2 FLUX2_INLINE void add_offsets(const float*, const RowCodes*, int64_t, size_t) {}
};

// How blocks are added up: so many groups, so many of them before they are scaled, and whether
// there are scales for each half of a block.
struct Steps {
    int64_t n_groups, at_once;
    bool in_halves;
};

// Brings a block of each of n rows into the first cache.
template <int n, typename T>
FLUX2_AVX2 FLUX2_INLINE void fetch_rows(const T* rows, int64_t stride) {
    if constexpr (n > 0) {
        _mm_prefetch(reinterpret_cast<const char*>(rows), _MM_HINT_T0);
        fetch_rows<n - 1>(rows + stride, stride);
    }
}

// n rows from `row` on times a panel.
template <Adds adds, Steps steps, int n, typename Row, typename Panel>
FLUX2_AVX2 void multiply_rows(const CodeProduct<Row, Panel>& m, const Panel* panel, int64_t row,
                              float* to) {
    const Row* x = m.rows + row * m.row_stride;
    to += row * m.result_stride;
    Results<n> results;
    if (m.adds) {
        results.read(to, m.result_stride);
    }
    fetch_rows<n>(to + n * m.result_stride, m.result_stride);
    for (int64_t block = 0; block < m.n_blocks; ++block, ++x) {
        fetch_rows<n>(x + n * m.row_stride, m.row_stride);
        const Panel& w = panel[block];
        const auto* codes = reinterpret_cast<const __m256i*>(w.codes.data());
#pragma GCC unroll 2
        for (int64_t first = 0; first < steps.n_groups; first += steps.at_once) {
            Sums<adds, n> sums;
#pragma GCC unroll 16
            for (int64_t group = first; group < first + steps.at_once; ++group) {
                sums.add(_mm256_loadu_si256(codes + 2 * group),
                         _mm256_loadu_si256(codes + 2 * group + 1), x, m.row_stride, group);
            }
            const size_t half = steps.in_halves && first >= steps.n_groups / 2 ? 1 : 0;
            results.add(sums, w.scales[half].data(), x, m.row_stride);
        }
        if constexpr (adds == Adds::wide_pairs) {
            continue;  // no offsets
        } else if constexpr (steps.in_halves) {
            results.add_offsets(w.offsets[0].data(), x, m.row_stride, 1);
            results.add_offsets(w.offsets[1].data(), x, m.row_stride, 2);
        } else {
            results.add_offsets(w.offsets[0].data(), x, m.row_stride, 0);
        }
    }
    results.write(to, m.result_stride);
}

template <Adds adds, Steps steps, typename Row, typename Panel>
FLUX2_AVX2 void multiply_all_rows(const CodeProduct<Row, Panel>& m, const Panel* panel, float* to) {
    constexpr int64_t kRows = 3;  // whose sums and results are in registers
    int64_t row = 0;
    for (; row + kRows <= m.n_rows; row += kRows) {
        multiply_rows<adds, steps, kRows>(m, panel, row, to);
    }
    if (m.n_rows - row == 2) {
        multiply_rows<adds, steps, 2>(m, panel, row, to);
    } else if (m.n_rows - row == 1) {
        multiply_rows<adds, steps, 1>(m, panel, row, to);
    }
}

}  // namespace

FLUX2_AVX2 void multiply_panel_avx2(const RowsTimesCodes& m, const PanelCodes* panel, float* to) {
    // Sums of 8 and 4 pairs of the largest products, 127 times 15 and 31, fit in 16 bits.
    if (m.in_halves) {
        multiply_all_rows<Adds::pairs, Steps{kGroups, 4, true}>(m, panel, to);
    } else if (m.bits <= 4) {
        multiply_all_rows<Adds::pairs, Steps{kGroups, 8, false}>(m, panel, to);
    } else {
        multiply_all_rows<Adds::pairs, Steps{kGroups, 4, false}>(m, panel, to);
    }
}

FLUX2_AVX2 void multiply_wide_panel_avx2(const RowsTimesWideCodes& m, const WidePanelCodes* panel,
                                         float* to) {
    if (m.in_halves) {
        multiply_all_rows<Adds::wide_pairs, Steps{kWideGroups, 8, true}>(m, panel, to);
    } else {
        multiply_all_rows<Adds::wide_pairs, Steps{kWideGroups, 16, false}>(m, panel, to);
    }
}

namespace {

bool ask_for_avx_vnni() {
    constexpr unsigned kVnni = 1u << 4;  // of part 1 of leaf 7, eax
    unsigned a = 0, b = 0, c = 0, d = 0;
    return process_may_use_vnni() && has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
           (a & kVnni) != 0;
}

}  // namespace

bool has_avx_vnni() {
    static const bool has = ask_for_avx_vnni();  // takes a microsecond on virtual machines
    return has;
}

FLUX2_AVX2 void multiply_panel_avx_vnni(const RowsTimesCodes& m, const PanelCodes* panel,
                                        float* to) {
    if (m.in_halves) {
        multiply_all_rows<Adds::fours, Steps{kGroups, 4, true}>(m, panel, to);
    } else {
        multiply_all_rows<Adds::fours, Steps{kGroups, 8, false}>(m, panel, to);
    }
}

}  // namespace flux2::cpu

#endif
