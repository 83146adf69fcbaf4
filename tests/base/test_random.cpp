#include "base/file.hpp"
#include "base/random.hpp"
#include "formats/safetensors.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

namespace flux2 {
namespace {

// torch's float logarithm, sine and cosine against ours in double; recorded values differ by up to
// 2.8e-6.
constexpr float kLimit = 3e-6f;

// Values recorded from torch under a key like "cuda_f32_42_16x16_every521": device, type, seed,
// height and width, and which of the values they are.
struct Recorded {
    std::string device_and_type;
    uint64_t seed = 0;
    size_t n = 0;  // values of the whole tensor
    size_t first = 0;
    size_t step = 1;
    std::vector<float> values;
};

Recorded read_recorded(const TensorInfo& tensor) {
    Recorded recorded;
    recorded.values.resize(static_cast<size_t>(tensor.shape.elements()));
    to_f32(tensor.type, tensor.bytes, recorded.values);
    std::istringstream key(tensor.name);
    std::string device, type, part;
    size_t height = 0;
    size_t width = 0;
    char separator = 0;
    std::getline(key, device, '_');
    std::getline(key, type, '_');
    key >> recorded.seed >> separator >> height >> separator >> width;
    REQUIRE_MESSAGE(!key.fail(), tensor.name);
    recorded.device_and_type = device + "_" + type;
    recorded.n = 128 * height * width;
    key >> part;
    if (part == "_last") {
        recorded.first = recorded.n - recorded.values.size();
    } else if (part.rfind("_every", 0) == 0) {
        recorded.step = std::stoul(part.substr(6));
    }
    return recorded;
}

std::vector<Recorded> read_all(const std::string& device_and_type) {
    const MappedFile file(test::fixture("noise.safetensors"));
    std::vector<Recorded> all;
    for (const TensorInfo& tensor : parse_safetensors("noise.safetensors", file.bytes()).tensors) {
        Recorded recorded = read_recorded(tensor);
        if (recorded.device_and_type == device_and_type) {
            all.push_back(std::move(recorded));
        }
    }
    REQUIRE(all.size() >= 20);
    return all;
}

// The values of ours that were recorded.
std::vector<float> draw_same(Generator generator, const Recorded& recorded) {
    const std::vector<float> all = draw_normal(generator, recorded.seed, recorded.n);
    REQUIRE(all.size() == recorded.n);
    std::vector<float> values;
    for (size_t i = 0; i < recorded.values.size(); i++) {
        values.push_back(all.at(recorded.first + i * recorded.step));
    }
    return values;
}

float largest_difference(Generator generator, const std::string& device_and_type) {
    float largest = 0.0f;
    for (const Recorded& recorded : read_all(device_and_type)) {
        const std::vector<float> values = draw_same(generator, recorded);
        for (size_t i = 0; i < values.size(); i++) {
            largest = std::max(largest, std::abs(values[i] - recorded.values[i]));
        }
    }
    return largest;
}

TEST_CASE("noise is the same from any number of threads") {
    // Less than a round of torch's threads, and more than two.
    for (const size_t n : {size_t{16}, size_t{5008}, size_t{2500000}}) {
        for (const Generator generator : {Generator::cuda, Generator::cuda_f32}) {
            CHECK(draw_normal(generator, 5, n, 3) == draw_normal(generator, 5, n));
        }
    }
}

TEST_CASE("f32 noise is torch's within float rounding") {
    CHECK(largest_difference(Generator::cuda_f32, "cuda_f32") <= kLimit);
    CHECK(largest_difference(Generator::cpu_f32, "cpu_f32") <= kLimit);
}

TEST_CASE("bf16 noise of the cuda generator is torch's but at the edges of rounding") {
    size_t n_values = 0;
    size_t n_other = 0;
    for (const Recorded& recorded : read_all("cuda_bf16")) {
        const std::vector<float> values = draw_same(Generator::cuda, recorded);
        const std::vector<float> unrounded = draw_same(Generator::cuda_f32, recorded);
        for (size_t i = 0; i < values.size(); i++) {
            n_values++;
            if (values[i] != recorded.values[i]) {
                n_other++;
                const float edge = (values[i] + recorded.values[i]) / 2.0f;
                CHECK(std::abs(unrounded[i] - edge) <= kLimit);
            }
        }
    }
    CHECK(n_values > 10000);
    CHECK(n_other < n_values / 1000);
}

TEST_CASE("bf16 noise of the cpu generator is torch's bit for bit") {
    size_t n_other = 0;
    for (const Recorded& recorded : read_all("cpu_bf16")) {
        const std::vector<float> values = draw_same(Generator::cpu, recorded);
        for (size_t i = 0; i < values.size(); i++) {
            n_other +=
                std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(recorded.values[i]);
        }
    }
    CHECK(n_other == 0);
}

TEST_CASE("generators have names, other names are refused") {
    CHECK(parse_generator("cuda") == Generator::cuda);
    CHECK(parse_generator("cuda-f32") == Generator::cuda_f32);
    CHECK(parse_generator("cpu") == Generator::cpu);
    CHECK(parse_generator("cpu-f32") == Generator::cpu_f32);
    const auto error = test::error_of([] { parse_generator("gpu"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("'gpu'"));
    CHECK(error.mentions("cuda, cuda-f32, cpu or cpu-f32"));
}

TEST_CASE("noise comes in sixteens") {
    CHECK(draw_normal(Generator::cpu, 0, 0).empty());
    CHECK(test::error_of([] { draw_normal(Generator::cuda, 0, 24); }).kind == ErrorKind::internal);
}

}  // namespace
}  // namespace flux2
