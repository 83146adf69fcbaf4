#include "formats/tensor_type.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace flux2;
using namespace flux2::test;

namespace {

constexpr uint32_t kSeed = 20240229;

std::vector<float> converted(TensorType type, std::span<const std::byte> bytes, size_t n) {
    std::vector<float> values(n, -12345.0f);
    to_f32(type, bytes, values);
    return values;
}

// Equal bit for bit, NaNs included.
bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

template <typename T>
void check_values(TensorType type, const std::vector<T>& values) {
    const std::vector<float> got = converted(type, bytes_of(values), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        CHECK(got[i] == static_cast<float>(values[i]));
    }
}

Bytes random_bytes(size_t n) {
    std::mt19937 random(kSeed);
    std::uniform_int_distribution<int> distribution(0, 255);
    Bytes bytes(n);
    for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(distribution(random));
    }
    return bytes;
}

std::vector<float> random_values(size_t n) {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> distribution(0.0f, 0.02f);
    std::vector<float> values(n);
    for (float& value : values) {
        value = distribution(random);
    }
    return values;
}

// All ggml types, and those of them that ggml itself can turn into floats.
std::vector<TensorType> ggml_types() {
    std::vector<TensorType> types;
    for (int32_t number = 0; number < GGML_TYPE_COUNT; ++number) {
        if (const auto type = type_from_gguf(number)) {
            types.push_back(*type);
        }
    }
    return types;
}

const ggml_type_traits* traits(TensorType type) {
    return ggml_get_type_traits(static_cast<ggml_type>(type));
}

constexpr std::array kWrittenTypes = {
    TensorType::f32,  TensorType::f16,    TensorType::bf16,   TensorType::q8_0,
    TensorType::q6_k, TensorType::q5_k,   TensorType::q4_k,   TensorType::q3_k,
    TensorType::q2_k, TensorType::q4_0,   TensorType::q4_1,   TensorType::q5_0,
    TensorType::q5_1, TensorType::iq4_nl, TensorType::iq4_xs, TensorType::mxfp4,
};

}  // namespace

TEST_CASE("every F8_E4M3 code has the value of its definition") {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const std::vector<uint8_t> stored = {static_cast<uint8_t>(code)};
        const float got = converted(TensorType::f8_e4m3, bytes_of(stored), 1)[0];
        if (code == 0x7F || code == 0xFF) {
            CHECK(std::isnan(got));
            continue;
        }
        const int e = (code / 8) % 16;
        const int m = code % 8;
        const double magnitude =
            e == 0 ? m * std::pow(2.0, -9) : (1 + m / 8.0) * std::pow(2.0, e - 7);
        CHECK(static_cast<double>(got) == (code >= 128 ? -magnitude : magnitude));
        CHECK(std::signbit(got) == (code >= 128));
    }
    const Bytes largest = bytes_of(std::vector<uint8_t>{0x7E});
    CHECK(converted(TensorType::f8_e4m3, largest, 1)[0] == 448.0f);
}

TEST_CASE("every F8_E5M2 code has the value of its definition") {
    for (int code = 0; code < 256; ++code) {
        CAPTURE(code);
        const std::vector<uint8_t> stored = {static_cast<uint8_t>(code)};
        const float got = converted(TensorType::f8_e5m2, bytes_of(stored), 1)[0];
        const int e = (code / 4) % 32;
        const int m = code % 4;
        if (e == 31 && m != 0) {
            CHECK(std::isnan(got));
            continue;
        }
        const double magnitude = e == 31  ? std::numeric_limits<double>::infinity()
                                 : e == 0 ? m * std::pow(2.0, -16)
                                          : (1 + m / 4.0) * std::pow(2.0, e - 15);
        CHECK(static_cast<double>(got) == (code >= 128 ? -magnitude : magnitude));
        CHECK(std::signbit(got) == (code >= 128));
    }
}

TEST_CASE("every F16 code has the value of its definition") {
    for (int code = 0; code < 65536; ++code) {
        const std::vector<uint16_t> stored = {static_cast<uint16_t>(code)};
        const float got = converted(TensorType::f16, bytes_of(stored), 1)[0];
        const int e = (code / 1024) % 32;
        const int m = code % 1024;
        if (e == 31 && m != 0) {
            REQUIRE(std::isnan(got));
            continue;
        }
        const double magnitude = e == 31  ? std::numeric_limits<double>::infinity()
                                 : e == 0 ? m * std::pow(2.0, -24)
                                          : (1 + m / 1024.0) * std::pow(2.0, e - 15);
        REQUIRE(static_cast<double>(got) == (code >= 32768 ? -magnitude : magnitude));
    }
}

TEST_CASE("a BF16 value is the upper half of an F32 value") {
    std::vector<uint16_t> codes;
    std::vector<float> expected;
    for (uint32_t code = 0; code < 65536; ++code) {
        codes.push_back(static_cast<uint16_t>(code));
        expected.push_back(std::bit_cast<float>(code << 16));
    }
    CHECK(same_bits(converted(TensorType::bf16, bytes_of(codes), codes.size()), expected));
}

TEST_CASE("F32 passes unchanged and F64 is rounded to it") {
    const std::vector<float> floats = {0.0f,   -0.0f,  1.5f,
                                       1e-42f, -3e38f, std::numeric_limits<float>::infinity()};
    CHECK(same_bits(converted(TensorType::f32, bytes_of(floats), floats.size()), floats));
    check_values<double>(TensorType::f64, {0.0, -0.1, 1e-300, 16777217.0, 1.0 / 3.0});
}

TEST_CASE("integers of all widths become the nearest float") {
    check_values<int8_t>(TensorType::i8, {-128, -1, 0, 127});
    check_values<int16_t>(TensorType::i16, {-32768, -1, 0, 32767});
    check_values<int32_t>(TensorType::i32, {std::numeric_limits<int32_t>::min(), -1, 16777217});
    check_values<int64_t>(TensorType::i64, {std::numeric_limits<int64_t>::min(), -1, 1LL << 40});
    check_values<uint8_t>(TensorType::u8, {0, 128, 255});
    check_values<uint16_t>(TensorType::u16, {0, 32768, 65535});
    check_values<uint32_t>(TensorType::u32, {0, 1u << 31, 4294967295u});
    check_values<uint64_t>(TensorType::u64, {0, 1ULL << 63, ~0ULL});
    check_values<uint8_t>(TensorType::boolean, {0, 1});
}

TEST_CASE("input needs no alignment") {
    constexpr size_t kElements = 256;
    std::vector<TensorType> types = ggml_types();
    for (const char* dtype : {"F8_E4M3", "F8_E5M2", "U8", "U16", "U32", "U64", "BOOL"}) {
        types.push_back(*type_from_safetensors(dtype));
    }
    for (const TensorType type : types) {
        if (!converts_to_f32(type)) {
            continue;
        }
        CAPTURE(type_name(type));
        const Bytes aligned = random_bytes(data_bytes(type, kElements));
        Bytes shifted(aligned.size() + 1);
        std::copy(aligned.begin(), aligned.end(), shifted.begin() + 1);
        CHECK(same_bits(converted(type, std::span(shifted).subspan(1), kElements),
                        converted(type, aligned, kElements)));
    }
}

TEST_CASE("quantised types have the values ggml gives them") {
    constexpr size_t kElements = 1024;
    int n_types = 0;
    for (const TensorType type : ggml_types()) {
        if (!is_quantized(type) || traits(type)->to_float == nullptr) {
            continue;
        }
        CAPTURE(type_name(type));
        const Bytes bytes = random_bytes(data_bytes(type, kElements));
        std::vector<float> expected(kElements);
        traits(type)->to_float(bytes.data(), expected.data(), kElements);
        CHECK(same_bits(converted(type, bytes, kElements), expected));
        ++n_types;
    }
    CHECK(n_types >= 20);
}

TEST_CASE("from_f32 gives the bytes ggml gives, row by row") {
    constexpr int64_t kRow = 512;
    constexpr int64_t kRows = 3;
    const std::vector<float> values = random_values(kRow * kRows);
    for (const TensorType type : kWrittenTypes) {
        CAPTURE(type_name(type));
        Bytes got(data_bytes(type, kRow * kRows));
        from_f32(type, values, kRow, got);
        Bytes expected(got.size());
        const size_t row_bytes = expected.size() / kRows;
        for (size_t row = 0; row < kRows; ++row) {
            ggml_quantize_chunk(static_cast<ggml_type>(type), values.data() + row * kRow,
                                expected.data() + row * row_bytes, 0, 1, kRow, nullptr);
        }
        CHECK(got == expected);
    }
}

TEST_CASE("values come back from every written type about as they went in") {
    constexpr size_t kElements = 512;
    const std::vector<float> values = random_values(kElements);
    for (const TensorType type : kWrittenTypes) {
        CAPTURE(type_name(type));
        Bytes bytes(data_bytes(type, kElements));
        from_f32(type, values, kElements, bytes);
        const std::vector<float> back = converted(type, bytes, kElements);
        double error = 0;
        double power = 0;
        for (size_t i = 0; i < kElements; ++i) {
            const auto x = static_cast<double>(values[i]);
            const double difference = static_cast<double>(back[i]) - x;
            error += difference * difference;
            power += x * x;
        }
        // Two bits per value, the coarsest type here, lose about 0.3 of a normal distribution's
        // spread; wrong scales or a wrong order of values would lose more than all of it.
        CHECK(std::sqrt(error / power) < 0.5);
    }
}

TEST_CASE("block types refuse values that are not finite, wherever they stand") {
    constexpr size_t kElements = 512;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const TensorType type : kWrittenTypes) {
        CAPTURE(type_name(type));
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
            for (const size_t place : {size_t{0}, size_t{31}, size_t{300}, kElements - 1}) {
                std::vector<float> values(kElements, 1.0f);
                values[place] = bad;
                CHECK(find_not_finite(values) == place);
                Bytes bytes(data_bytes(type, kElements));
                const auto encode = [&] { from_f32(type, values, kElements, bytes); };
                if (!is_quantized(type)) {
                    encode();
                    CHECK(find_not_finite(converted(type, bytes, kElements)) == place);
                    continue;
                }
                const auto error = error_of(encode);
                CHECK(error.kind == ErrorKind::bad_file);
                CHECK(error.mentions("value " + std::to_string(place)));
            }
        }
    }
}

TEST_CASE("values finite and of any length are found to be so") {
    CHECK(find_not_finite({}) == 0);
    std::vector<float> values(10'000, -std::numeric_limits<float>::max());
    CHECK(find_not_finite(values) == values.size());
    values[9'999] = -std::numeric_limits<float>::infinity();
    CHECK(find_not_finite(values) == 9'999);
}

TEST_CASE("values too small for a scale of Q8_0 become 0") {
    for (const float tiny : {std::numeric_limits<float>::denorm_min(), 1e-40f, 3e-37f}) {
        std::vector<float> values(32, tiny);
        values[5] = 0.0f;
        Bytes bytes(data_bytes(TensorType::q8_0, 32));
        from_f32(TensorType::q8_0, values, 32, bytes);
        CHECK(bytes == Bytes(bytes.size()));  // the scale and all codes
    }
}

TEST_CASE("buffers of the wrong size are refused") {
    std::vector<float> values(64);
    Bytes bytes(2 * 34);
    CHECK_NOTHROW(to_f32(TensorType::q8_0, bytes, values));
    const auto refused = [](const std::function<void()>& call) {
        CHECK(error_of(call).kind == ErrorKind::internal);
    };
    refused([&] { to_f32(TensorType::q8_0, std::span(bytes).first(67), values); });
    refused([&] { to_f32(TensorType::f32, bytes, values); });
    refused([&] { from_f32(TensorType::q8_0, values, 64, std::span(bytes).first(34)); });
    refused([&] { from_f32(TensorType::q8_0, values, 48, bytes); });
    refused([&] { from_f32(TensorType::f8_e4m3, values, 64, std::span(bytes).first(64)); });
    // A part of a block: 33 values are no whole number of Q8_0's blocks of 32.
    refused(
        [&] { to_f32(TensorType::q8_0, std::span(bytes).first(34), std::span(values).first(33)); });
}

TEST_CASE("a type ggml cannot turn into floats is refused") {
    const auto q8_1 = type_from_gguf(GGML_TYPE_Q8_1);
    REQUIRE(q8_1.has_value());
    CHECK_FALSE(converts_to_f32(*q8_1));
    const Bytes bytes(block_bytes(*q8_1));
    std::vector<float> values(static_cast<size_t>(block_elements(*q8_1)));
    CHECK(error_of([&] { to_f32(*q8_1, bytes, values); }).kind == ErrorKind::internal);
}

TEST_CASE("numbers of dropped and unknown types give nothing") {
    for (const int32_t number : {4, 5, 31, 32, 33, 36, 37, 38}) {
        CAPTURE(number);
        CHECK_FALSE(type_from_gguf(number).has_value());
    }
    CHECK_FALSE(type_from_gguf(-1).has_value());
    CHECK_FALSE(type_from_gguf(GGML_TYPE_COUNT).has_value());
    CHECK_FALSE(type_from_gguf(1000).has_value());
    CHECK_FALSE(type_from_gguf(std::numeric_limits<int32_t>::max()).has_value());
    CHECK_FALSE(type_from_gguf(std::numeric_limits<int32_t>::min()).has_value());
    CHECK(type_from_gguf(12) == TensorType::q4_k);
}

TEST_CASE("E8M0 is a power of two") {
    const auto value = [](int code) {
        return converted(TensorType::f8_e8m0,
                         bytes_of(std::vector<uint8_t>{static_cast<uint8_t>(code)}), 1)[0];
    };
    CHECK(value(127) == 1.0f);
    CHECK(value(130) == 8.0f);
    CHECK(value(126) == 0.5f);
    CHECK(value(0) == std::ldexp(1.0f, -127));
    CHECK(std::isnan(value(255)));
}

TEST_CASE("codes with separate scales have sizes and names, but no values of their own") {
    CHECK(data_bytes(TensorType::scaled_nvfp4, 64) == 32);
    CHECK(data_bytes(TensorType::scaled_f8_e4m3, 64) == 64);
    for (const auto& [type, name] : {std::pair{TensorType::scaled_f8_e4m3, "scaled F8_E4M3"},
                                     {TensorType::scaled_f8_e5m2, "scaled F8_E5M2"},
                                     {TensorType::scaled_mxfp8, "MXFP8"},
                                     {TensorType::scaled_nvfp4, "NVFP4"},
                                     {TensorType::scaled_i8, "scaled I8"}}) {
        CHECK(type_name(type) == name);
        CHECK_FALSE(type_from_safetensors(name).has_value());
        CHECK(is_scaled(type));
        CHECK_FALSE(is_quantized(type));
        CHECK_FALSE(converts_to_f32(type));
        CHECK_FALSE(converts_from_f32(type));
    }
    CHECK_FALSE(is_scaled(TensorType::f8_e4m3));
}

TEST_CASE("names of unknown types give nothing") {
    for (const char* dtype : {"", "f32", "F32 ", "Q8_0", "F4", "F8_E3M4", "C64", "safetensors"}) {
        CAPTURE(std::string(dtype));
        CHECK_FALSE(type_from_safetensors(dtype).has_value());
    }
}

TEST_CASE("safetensors names have the sizes the format gives them") {
    const std::vector<std::pair<const char*, size_t>> sizes = {
        {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1},
        {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},   {"F8_E5M2", 1},
        {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1},
    };
    for (const auto& [dtype, bytes] : sizes) {
        CAPTURE(std::string(dtype));
        const auto type = type_from_safetensors(dtype);
        REQUIRE(type.has_value());
        CHECK(block_elements(*type) == 1);
        CHECK(block_bytes(*type) == bytes);
        CHECK(data_bytes(*type, 10) == 10 * bytes);
        CHECK(type_name(*type) == dtype);
        CHECK_FALSE(is_quantized(*type));
        CHECK(is_float(*type) == (std::string_view(dtype).find('F') != std::string_view::npos));
        CHECK(converts_to_f32(*type));
    }
}

TEST_CASE("ggml's types have ggml's sizes") {
    for (const TensorType type : ggml_types()) {
        CAPTURE(type_name(type));
        CHECK(block_elements(type) == traits(type)->blck_size);
        CHECK(block_bytes(type) == traits(type)->type_size);
        CHECK(is_quantized(type) == traits(type)->is_quantized);
    }
    CHECK(type_name(TensorType::q4_k) == "Q4_K");
    CHECK(type_name(TensorType::iq4_xs) == "IQ4_XS");
    CHECK(data_bytes(TensorType::q8_0, 64) == 68);
}
