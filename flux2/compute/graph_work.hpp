// What a graph costs: the multiplications and additions of its matrix multiplies, attention and
// convolutions, and the bytes that everything else reads and writes.
#pragma once

#include <ggml.h>

#include <array>
#include <compare>
#include <cstddef>
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

// Operations that a device computes at a speed of their own.
enum class WorkKind {
    linear,
    attention,
    convolution,
    memory,  // everything else: its time is that of reading and writing
};
inline constexpr size_t kWorkKinds = 4;
// A value for each kind.
using WorkAmounts = std::array<double, kWorkKinds>;

// Multiplications and additions, or bytes of kind memory; 0 for views, which compute nothing.
struct NodeWork {
    WorkKind kind = WorkKind::memory;
    double amount = 0;
};
NodeWork work_of_node(const ggml_tensor& node);
WorkAmounts amounts_of(const std::vector<const ggml_tensor*>& nodes);

bool computes(const ggml_tensor& node);
// Bytes that a node reads and writes.
double bytes_touched(const ggml_tensor& node);

}  // namespace flux2
