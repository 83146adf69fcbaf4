// Floats plus shape: the values that are passed between stages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace flux2 {

struct HostTensor {
    std::array<int64_t, 4> ne = {1, 1, 1, 1};  // ggml order, fastest first
    std::vector<float> data;

    HostTensor() = default;
    explicit HostTensor(std::array<int64_t, 4> sizes)
        : ne(sizes), data(static_cast<size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3])) {}

    int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// A constant tensor with shared ownership; null: none.
using SharedTensor = std::shared_ptr<const HostTensor>;

inline SharedTensor share(HostTensor tensor) {
    return std::make_shared<const HostTensor>(std::move(tensor));
}

}  // namespace flux2
