// What functions of CPU nodes work with. Tensors are contiguous F32 unless said otherwise.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

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

// The same in whole lines of the cache, since vectors and tiles that reach over their ends take
// twice as long to read.
constexpr size_t kCacheLine = 64;

struct FreeAligned {
    void operator()(void* memory) const {
        ::operator delete (memory, std::align_val_t{kCacheLine});
    }
};

template <typename Value>
using AlignedScratch = std::unique_ptr<Value[], FreeAligned>;

template <typename Value>
AlignedScratch<Value> aligned_scratch(int64_t n) {
    return AlignedScratch<Value>(static_cast<Value*>(
        ::operator new (static_cast<size_t>(n) * sizeof(Value), std::align_val_t{kCacheLine})));
}

}  // namespace flux2::cpu
