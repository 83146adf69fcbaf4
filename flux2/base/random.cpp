// Transforms are computed in double and rounded once, so that platforms agree on the values.
#include "base/random.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace flux2 {
namespace {

constexpr std::array kGeneratorNames = {
    std::pair{"cuda", Generator::cuda}, std::pair{"cuda-f32", Generator::cuda_f32},
    std::pair{"cpu", Generator::cpu}, std::pair{"cpu-f32", Generator::cpu_f32}};

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// To the nearest bf16, ties to even. Not for NaN.
float round_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return std::bit_cast<float>(rounded & 0xffff0000);
}

// As torch rounds a bf16 operation: to f32, then to bf16.
float round_to_bf16(double value) {
    return round_to_bf16(static_cast<float>(value));
}

// Philox4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3).
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t thread, uint32_t iteration) {
    const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
    const auto high = [](uint64_t word) { return static_cast<uint32_t>(word >> 32); };
    std::array<uint32_t, 4> c = {iteration, 0, low(thread), high(thread)};
    std::array<uint32_t, 2> key = {low(seed), high(seed)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t{0xd2511f53} * c[0];
        const uint64_t b = uint64_t{0xcd9e8d57} * c[2];
        c = {high(b) ^ c[1] ^ key[0], low(b), high(a) ^ c[3] ^ key[1], low(a)};
        key[0] += 0x9e3779b9;
        key[1] += 0xbb67ae85;
    }
    return c;
}

// Box-Muller as curand has it: the sine comes first.
std::array<float, 2> normal_pair(uint32_t x, uint32_t y) {
    const auto uniform = [](uint32_t word) { return word * 0x1p-32 + 0x1p-33; };
    const double radius = std::sqrt(-2.0 * std::log(uniform(x)));
    const double angle = uniform(y) * kTwoPi;
    return {static_cast<float>(radius * std::sin(angle)),
            static_cast<float>(radius * std::cos(angle))};
}

// Each thread of torch's kernel makes four values at a time and stores them n_threads apart.
std::vector<float> draw_cuda(uint64_t seed, size_t n, int n_cpu_threads) {
    constexpr size_t kMaxThreads = 132 * 2048;
    constexpr size_t kBlock = 256;
    constexpr size_t kChunk = 16 * kBlock;  // of torch's threads, for one of ours
    const size_t n_threads = std::min(kMaxThreads, (n + kBlock - 1) / kBlock * kBlock);
    const size_t n_chunks = (n_threads + kChunk - 1) / kChunk;
    std::vector<float> values(n);
    const auto draw = [&](size_t first, size_t thread) {
        const auto iteration = static_cast<uint32_t>(first / (4 * n_threads));
        const std::array<uint32_t, 4> words = philox(seed, thread, iteration);
        for (size_t pair = 0; pair < 4; pair += 2) {
            const size_t i = first + pair * n_threads + thread;
            if (i >= n) {
                break;
            }
            const auto [sine, cosine] = normal_pair(words[pair], words[pair + 1]);
            values[i] = sine;
            if (i + n_threads < n) {
                values[i + n_threads] = cosine;
            }
        }
    };
    parallel_for(n_chunks, n_cpu_threads, [&](size_t chunk, size_t) {
        const size_t end = std::min(n_threads, (chunk + 1) * kChunk);
        for (size_t first = 0; first < n; first += 4 * n_threads) {
            for (size_t thread = chunk * kChunk; thread < end; thread++) {
                draw(first, thread);
            }
        }
    });
    return values;
}

// Replaces uniform values by normal ones in blocks of 16: the first eight give the radius, the
// others the angle. `round` follows every operation.
template <typename Round>
void transform_cpu(std::vector<float>& values, Round round) {
    // torch adds a mean of 0, which makes a zero positive.
    const auto result = [&](double value) { return static_cast<float>(round(value) + 0.0); };
    for (size_t block = 0; block < values.size(); block += 16) {
        for (size_t i = block; i < block + 8; i++) {
            const auto uniform = static_cast<double>(values[i]);
            const double logarithm = round(std::log(round(1.0 - uniform)));
            const double radius = round(std::sqrt(round(-2.0 * logarithm)));
            const double angle = round(kTwoPi * static_cast<double>(values[i + 8]));
            values[i] = result(radius * round(std::cos(angle)));
            values[i + 8] = result(radius * round(std::sin(angle)));
        }
    }
}

// `bits` random bits per uniform value.
std::vector<float> draw_uniform_cpu(uint64_t seed, size_t n, int bits) {
    std::mt19937 twister(static_cast<uint32_t>(seed));
    const uint32_t levels = uint32_t{1} << bits;
    std::vector<float> values(n);
    for (float& value : values) {
        value = static_cast<float>(twister() % levels) / static_cast<float>(levels);
    }
    return values;
}

}  // namespace

Generator parse_generator(std::string_view name) {
    for (const auto& [known, generator] : kGeneratorNames) {
        if (name == known) {
            return generator;
        }
    }
    fail(ErrorKind::bad_argument, "no noise generator is called '", name,
         "'; choose cuda, cuda-f32, cpu or cpu-f32");
}

std::vector<float> draw_normal(Generator generator, uint64_t seed, size_t n, int n_threads) {
    // torch treats an incomplete last block of 16 in its own way.
    check(n % 16 == 0, ErrorKind::internal, n, " normal values asked for, not a multiple of 16");
    std::vector<float> values;
    switch (generator) {
        case Generator::cuda:
            values = draw_cuda(seed, n, n_threads);
            for (float& value : values) {
                value = round_to_bf16(value);
            }
            break;
        case Generator::cuda_f32:
            values = draw_cuda(seed, n, n_threads);
            break;
        case Generator::cpu:
            values = draw_uniform_cpu(seed, n, 8);
            transform_cpu(values,
                          [](double value) { return static_cast<double>(round_to_bf16(value)); });
            break;
        case Generator::cpu_f32:
            values = draw_uniform_cpu(seed, n, 24);
            transform_cpu(values, [](double value) { return value; });
            break;
    }
    return values;
}

}  // namespace flux2
