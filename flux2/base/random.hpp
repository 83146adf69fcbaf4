// Normally distributed noise, drawn as torch.randn draws it, so that a seed gives the same picture
// here as in the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace flux2 {

// Which of torch's generators, and the type it draws in.
enum class Generator {
    cuda,      // Philox, rounded to bf16: what the reference's own program does
    cuda_f32,  // the same values unrounded
    cpu,       // Mersenne Twister, bf16 throughout: 256 levels before the transform
    cpu_f32,   // Mersenne Twister, f32
};

// "cuda", "cuda-f32", "cpu", "cpu-f32". Throws bad_argument for any other name.
Generator parse_generator(std::string_view name);

// The first n values for this seed; n is a multiple of 16. The order of the two cuda generators
// depends on the GPU above 270,336 values: it is that of 132 multiprocessors (H100, H200).
// Those of the cuda generators are drawn by several threads.
std::vector<float> draw_normal(Generator generator, uint64_t seed, size_t n, int n_threads = 1);

}  // namespace flux2
