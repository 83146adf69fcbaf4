// The sizes of a tensor.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace flux2 {

// Sizes in ggml's order, ne[0] running fastest: PyTorch's [out, in] is {in, out} here.
struct Shape {
    static constexpr int kMaxDims = 4;

    int n_dims = 0;  // 0 for a single value
    std::array<int64_t, kMaxDims> ne = {1, 1, 1, 1};

    Shape() = default;
    Shape(std::initializer_list<int64_t> sizes);

    int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
    int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
    bool operator==(const Shape& other) const { return ne == other.ne; }
};

// Equal but for dimensions of 1: [C, C] and [1, 1, C, C] hold the same bytes.
bool same_sizes(const Shape& a, const Shape& b);

// "[3072, 128]", fastest first.
std::string to_string(const Shape& shape);

}  // namespace flux2
