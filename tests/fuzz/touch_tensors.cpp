#include "touch_tensors.hpp"

#include <algorithm>
#include <vector>

namespace flux2::fuzz {
namespace {

// Keeps the reads from being optimised away.
volatile unsigned sink = 0;

void touch(const TensorInfo& tensor) {
    if (tensor.bytes.empty()) {
        return;
    }
    sink = std::to_integer<unsigned>(tensor.bytes.front());
    sink = std::to_integer<unsigned>(tensor.bytes.back());
    if (!converts_to_f32(tensor.type)) {
        return;
    }
    constexpr int64_t kMaxElements = 256;
    const int64_t block = block_elements(tensor.type);
    const int64_t n = std::min(kMaxElements, tensor.shape.elements()) / block * block;
    std::vector<float> values(static_cast<size_t>(n));
    to_f32(tensor.type, tensor.bytes.first(data_bytes(tensor.type, n)), values);
}

}  // namespace

void touch_tensors(const TensorDirectory& directory) {
    for (const TensorInfo& tensor : directory.tensors) {
        touch(tensor);
    }
}

}  // namespace flux2::fuzz
