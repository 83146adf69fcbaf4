// Hopper's own machine instructions: the bulk copy engine, the barriers it reports to, and matrix
// multiplies that read shared memory. They exist only in code built for sm_90a.
#pragma once

#include "compute/cuda/tensor_core.cuh"

#include <cuda.h>

#include <cstdint>

namespace flux2::cuda {

// ---- Barriers: a 64-bit word in shared memory, given by its address ----

__device__ inline void barrier_init(uint32_t barrier, int n_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals));
}

__device__ inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives; the phase ends only once this many bytes have been copied, too.
__device__ inline void barrier_expect(uint32_t barrier, int n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(n_bytes)
                 : "memory");
}

// Until the phase with this parity has ended.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    while (done == 0) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    }
}

// ---- Bulk copies ----

// What copy_box writes with a swizzle of 128 bytes begins at multiples of this in shared memory.
constexpr int kSwizzleBytes = 1024;

// A block's shared memory from the first such place on; it asks for kSwizzleBytes more than T has.
template <typename T>
__device__ inline T& swizzled_memory(unsigned char* memory) {
    const uint32_t over = shared_address(memory) % kSwizzleBytes;
    return *reinterpret_cast<T*>(memory + (kSwizzleBytes - over) % kSwizzleBytes);
}

// A box of a tensor in global memory -> shared memory, with zeros where it leaves the tensor.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int x, int y, int z,
                                uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

// Boxes of 64 values, those of the first and of the second half of a head, one after the other.
__device__ inline void copy_halves(uint32_t to, uint32_t half_bytes, const CUtensorMap& map,
                                   int head, int token, uint32_t barrier) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        copy_box(to + half * half_bytes, map, half * 64, head, token, barrier);
    }
}

// n_bytes of global memory -> shared memory; all multiples of 16.
__device__ inline void copy_bytes(uint32_t to, const void* from, int n_bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier)
        : "memory");
}

// The same box -> the cache.
__device__ inline void prefetch_box(const CUtensorMap& map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(
                     reinterpret_cast<uint64_t>(&map)),
                 "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// ---- Matrix multiplies, by four warps together ----

// Rows of 64 F16 or BF16 values as copy_box leaves them with a swizzle of 128 bytes: eight rows are
// 1024 bytes. `next_64`: bytes to the next 64 columns, of operands whose rows run along the inner
// dimension.
__device__ inline uint64_t matrix_at(uint32_t address, uint32_t next_64 = 16) {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | uint64_t{next_64 >> 4} << 16 | ((address & 0x3ffff) >> 4);
}

__device__ inline void multiplies_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void multiplies_end_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all but the last n groups are done.
template <int n>
__device__ void multiplies_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

// d [64 x n] in F32 += a [64 x 16] * b [16 x n] in F16; n is twice d's length.
#define FLUX2_EIGHT(d, i)                                                                       \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ inline void multiply_add_64(float (&d)[48], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, 1, 1, 1, 0, 0;"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40)
        : "l"(a), "l"(b));
}

__device__ inline void multiply_add_64(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 0;"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40), FLUX2_EIGHT(d, 48), FLUX2_EIGHT(d, 56)
        : "l"(a), "l"(b));
}

__device__ inline void multiply_add_64(float (&d)[96], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, 1, 1, 1, 0, 0;"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40), FLUX2_EIGHT(d, 48), FLUX2_EIGHT(d, 56),
          FLUX2_EIGHT(d, 64), FLUX2_EIGHT(d, 72), FLUX2_EIGHT(d, 80), FLUX2_EIGHT(d, 88)
        : "l"(a), "l"(b));
}

__device__ inline void multiply_add_64(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
        "%111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
        "%127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40), FLUX2_EIGHT(d, 48), FLUX2_EIGHT(d, 56),
          FLUX2_EIGHT(d, 64), FLUX2_EIGHT(d, 72), FLUX2_EIGHT(d, 80), FLUX2_EIGHT(d, 88),
          FLUX2_EIGHT(d, 96), FLUX2_EIGHT(d, 104), FLUX2_EIGHT(d, 112), FLUX2_EIGHT(d, 120)
        : "l"(a), "l"(b));
}

// d [64 x 128] in F32 = a [64 x 16] * b [16 x 128] in BF16, plus what d was when `adds`.
__device__ inline void multiply_bf16(float (&d)[64], uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0; }"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40), FLUX2_EIGHT(d, 48), FLUX2_EIGHT(d, 56)
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

// The same with d [64 x 64] and b [16 x 64].
__device__ inline void multiply_bf16(float (&d)[32], uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0; }"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24)
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

// d += a * b with a in registers and b's rows along the inner dimension.
__device__ inline void multiply_add_bf16(float (&d)[64], const uint32_t* a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : FLUX2_EIGHT(d, 0), FLUX2_EIGHT(d, 8), FLUX2_EIGHT(d, 16), FLUX2_EIGHT(d, 24),
          FLUX2_EIGHT(d, 32), FLUX2_EIGHT(d, 40), FLUX2_EIGHT(d, 48), FLUX2_EIGHT(d, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef FLUX2_EIGHT

}  // namespace flux2::cuda
