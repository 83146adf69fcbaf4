// Matrix multiply for the CPU nodes: plain rows times a matrix that was packed into panels of 16
// columns beforehand, so that the innermost loop reads it sequentially.
#pragma once

#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kPanel = 16;  // columns

struct RowsTimesPanels {
    const float* a;  // n_rows rows of n_inner
    int64_t a_stride, n_rows, n_inner;
    const float* b;  // panels [n_inner][16]
    int64_t b_stride, n_panels;
    float* c;  // n_rows rows of 16 * n_panels
    int64_t c_stride;
    bool adds = false;  // to what c holds
};

void multiply(const RowsTimesPanels& m);

}  // namespace flux2::cpu
