// On x86 the library is built for any CPU. Loops that matter are compiled for newer ones too, and
// the best form for the CPU at hand is called.
#pragma once

#include "base/system.hpp"

#if defined(__GNUC__)
#define FLUX2_INLINE inline __attribute__((always_inline))
#else
#define FLUX2_INLINE inline
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#define FLUX2_X86 1
#define FLUX2_AVX2 __attribute__((target("avx2,fma")))
#define FLUX2_AVX512 __attribute__((target("avx512f")))
#endif

namespace flux2::cpu {

#if defined(FLUX2_X86)
inline bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

inline bool has_avx512() {
    return process_may_use_avx512();
}

template <auto kFunction, typename... Args>
FLUX2_AVX2 auto with_avx2(Args... args) {
    return kFunction(args...);
}

template <auto kFunction, typename... Args>
FLUX2_AVX512 auto with_avx512(Args... args) {
    return kFunction(args...);
}
#endif

// Calls a function that is FLUX2_INLINE.
template <auto kFunction, typename... Args>
auto call_best(Args... args) {
#if defined(FLUX2_X86)
    if (has_avx512()) {
        return with_avx512<kFunction>(args...);
    }
    if (has_avx2()) {
        return with_avx2<kFunction>(args...);
    }
#endif
    return kFunction(args...);
}

}  // namespace flux2::cpu
