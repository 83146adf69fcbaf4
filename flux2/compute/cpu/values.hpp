// What functions of CPU nodes work with. Tensors are contiguous F32 unless said otherwise.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>

namespace flux2::cpu {

inline const float* values(const ggml_tensor* tensor) {
    return static_cast<const float*>(tensor->data);
}

inline float* values(ggml_tensor* tensor) {
    return static_cast<float*>(tensor->data);
}

// Memory of one thread while its function runs; not initialised. Throws std::bad_alloc.
inline std::unique_ptr<float[]> scratch(int64_t n) {
    return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
}

}  // namespace flux2::cpu
