// What a graph costs: the multiplications and additions of its matrix multiplies, attention and
// convolutions. Everything else, element by element, counts as nothing.
#pragma once

#include <ggml.h>

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

namespace flux2::cli {

// w [k, m] of a type times x [k, n], n_batch times side by side.
struct MatMul {
    ggml_type type;
    int64_t k, m, n;
    int64_t n_batch = 1;

    double flops() const;
    auto operator<=>(const MatMul&) const = default;
};

struct Work {
    double flops = 0;
    // How often each multiply occurs. Convolutions are in here as the multiply that a filter
    // unrolled to a matrix would need; attention, which is not made of plain multiplies, is not.
    std::map<MatMul, int64_t> mat_muls;
};

Work work_of(const std::vector<const ggml_tensor*>& nodes);

}  // namespace flux2::cli
