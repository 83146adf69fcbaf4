#include "support/scaled_files.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace flux2::test {
namespace {

constexpr int64_t kNvfp4Block = 16;

size_t at(int64_t index) {
    return static_cast<size_t>(index);
}

template <typename Value>
uint8_t nearest(double wanted, int n_codes, const Value& value) {
    int best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int code = 0; code < n_codes; ++code) {
        const double distance = std::abs(value(static_cast<uint8_t>(code)) - wanted);
        if (distance < least) {  // never for NaN
            least = distance;
            best = code;
        }
    }
    return static_cast<uint8_t>(best);
}

std::string layer_of(const TestTensor& weight) {
    return weight.name.substr(0, weight.name.rfind('.'));
}

float largest(const std::vector<float>& values) {
    float most = 0;
    for (const float value : values) {
        most = std::max(most, std::abs(value));
    }
    return most;
}

Encoded as_fp8(const TestTensor& weight, float scale) {
    // Sorted once: a file has a million values.
    static const std::vector<std::pair<double, uint8_t>> sorted = [] {
        std::vector<std::pair<double, uint8_t>> all;
        for (int code = 0; code < 256; ++code) {
            if ((code & 0x7f) != 0x7f) {
                all.emplace_back(e4m3(static_cast<uint8_t>(code)), static_cast<uint8_t>(code));
            }
        }
        std::sort(all.begin(), all.end());
        return all;
    }();
    Encoded encoded;
    TestTensor codes{weight.name, weight.shape, {}, TensorType::f8_e4m3};
    for (const float value : floats_of(weight)) {
        const double wanted = static_cast<double>(value) / static_cast<double>(scale);
        auto above = std::lower_bound(sorted.begin(), sorted.end(), std::pair{wanted, uint8_t{0}});
        above = std::min(above, sorted.end() - 1);
        const auto below = above == sorted.begin() ? above : above - 1;
        const auto code = wanted - below->first < above->first - wanted ? below : above;
        codes.data.push_back(static_cast<std::byte>(code->second));
        encoded.values.push_back(static_cast<float>(code->first) * scale);
    }
    encoded.tensors = {codes};
    return encoded;
}

}  // namespace

double e4m3(uint8_t code) {
    const int e = (code >> 3) & 15;
    const int m = code & 7;
    if (e == 15 && m == 7) {
        return std::nan("");
    }
    const double size = e == 0 ? m * std::pow(2.0, -9) : (1 + m / 8.0) * std::pow(2.0, e - 7);
    return (code & 0x80) != 0 ? -size : size;
}

double e5m2(uint8_t code) {
    const int e = (code >> 2) & 31;
    const int m = code & 3;
    if (e == 31) {
        return std::nan("");
    }
    const double size = e == 0 ? m * std::pow(2.0, -16) : (1 + m / 4.0) * std::pow(2.0, e - 15);
    return (code & 0x80) != 0 ? -size : size;
}

double e2m1(uint8_t code) {
    constexpr std::array<double, 8> kSizes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double size = kSizes[code & 7];
    return (code & 8) != 0 ? -size : size;
}

uint8_t nearest_e4m3(double value) {
    return nearest(value, 256, e4m3);
}

uint8_t nearest_e2m1(double value) {
    return nearest(value, 16, e2m1);
}

size_t tiled_index(int64_t row, int64_t column, int64_t columns) {
    const int64_t tile = row / 128 * ((columns + 3) / 4) + column / 4;
    return at(tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4);
}

std::vector<float> floats_of(const TestTensor& tensor) {
    std::vector<float> values;
    const size_t size = tensor.type == TensorType::bf16 ? 2 : 4;
    for (size_t i = 0; i < tensor.data.size(); i += size) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char*>(&bits) + (4 - size), tensor.data.data() + i, size);
        values.push_back(std::bit_cast<float>(bits));
    }
    return values;
}

TestTensor scalar(const std::string& name, float value) {
    return {name, {}, bytes_of(std::vector<float>{value}), TensorType::f32};
}

Encoded as_scaled_fp8(const TestTensor& weight, const std::string& spelling) {
    const float scale = largest(floats_of(weight)) / 448.0f;
    Encoded encoded = as_fp8(weight, scale);
    encoded.tensors.push_back(scalar(layer_of(weight) + spelling, scale));
    return encoded;
}

Encoded as_plain_fp8(const TestTensor& weight) {
    return as_fp8(weight, 1.0f);
}

Encoded as_nvfp4(const TestTensor& weight, Order order) {
    const int64_t in = weight.shape[0];
    const int64_t out = weight.shape[1];
    const int64_t blocks = in / kNvfp4Block;
    const bool comfy = order == Order::comfy;
    const std::vector<float> values = floats_of(weight);
    const float factor = largest(values) / (6.0f * 448.0f);
    const int64_t rows = comfy ? (out + 127) / 128 * 128 : out;
    const int64_t columns = comfy ? (blocks + 3) / 4 * 4 : blocks;
    TestTensor scales{layer_of(weight) + ".weight_scale", {columns, rows}, {}, TensorType::f8_e4m3};
    scales.data.resize(at(rows * columns));
    TestTensor codes{weight.name, {in / 2, out}, Bytes(at(in / 2 * out)), TensorType::u8};
    Encoded encoded;
    encoded.values.resize(values.size());
    for (int64_t block = 0; block < out * blocks; ++block) {
        const int64_t row = block / blocks;
        const int64_t first = block * kNvfp4Block;
        const std::vector<float> run(values.begin() + first, values.begin() + first + kNvfp4Block);
        const uint8_t code = nearest_e4m3(static_cast<double>(largest(run) / 6.0f / factor));
        scales.data[comfy ? tiled_index(row, block % blocks, blocks) : at(block)] =
            static_cast<std::byte>(code);
        const auto scale = static_cast<float>(e4m3(code)) * factor;
        for (int64_t i = first; i < first + kNvfp4Block; ++i) {
            const float wanted = scale > 0 ? values[at(i)] / scale : 0.0f;
            const uint8_t nibble = nearest_e2m1(static_cast<double>(wanted));
            const bool high = (i % 2 == 0) == comfy;
            codes.data[at(i / 2)] |= static_cast<std::byte>(high ? nibble << 4 : nibble);
            encoded.values[at(i)] = static_cast<float>(e2m1(nibble)) * scale;
        }
    }
    encoded.tensors = {codes, scales, scalar(layer_of(weight) + ".weight_scale_2", factor)};
    return encoded;
}

TestTensor as_bf16(const TestTensor& tensor, const std::vector<float>& values) {
    std::vector<uint16_t> rounded;
    for (const float value : values) {
        const auto bits = std::bit_cast<uint32_t>(value);
        // To the nearest, ties to even.
        rounded.push_back(static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
    }
    return {tensor.name, tensor.shape, bytes_of(rounded), TensorType::bf16};
}

}  // namespace flux2::test
