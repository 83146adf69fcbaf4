// What a graph costs: the multiplications and additions of its matrix multiplies, attention and
// convolutions. Elementwise operations are not counted.
#pragma once

#include <ggml.h>

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

namespace flux2 {

// w [k, m] of a type times x [k, n], n_batch times.
struct MatMul {
    ggml_type type;
    int64_t k, m, n;
    int64_t n_batch = 1;

    double flops() const;
    auto operator<=>(const MatMul&) const = default;
};

struct GraphWork {
    double flops = 0;
    // How often each multiply occurs. A convolution is counted as the multiply by its filter as a
    // matrix (im2col); attention is not included.
    std::map<MatMul, int64_t> mat_muls;
};

GraphWork work_of(const std::vector<const ggml_tensor*>& nodes);

}  // namespace flux2
