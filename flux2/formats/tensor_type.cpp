#include "formats/tensor_type.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace flux2 {
namespace {

static_assert(static_cast<int>(TensorType::q6_k) == GGML_TYPE_Q6_K);
static_assert(static_cast<int>(TensorType::iq4_xs) == GGML_TYPE_IQ4_XS);
static_assert(static_cast<int>(TensorType::bf16) == GGML_TYPE_BF16);
static_assert(static_cast<int>(TensorType::mxfp4) == GGML_TYPE_MXFP4);
static_assert(GGML_TYPE_COUNT <= static_cast<int>(TensorType::safetensors_only));

struct PlainType {
    TensorType type;
    std::string_view dtype;  // in a safetensors header
    size_t bytes;
};

constexpr std::array kPlainTypes = {
    PlainType{TensorType::f64, "F64", 8},         PlainType{TensorType::f32, "F32", 4},
    PlainType{TensorType::f16, "F16", 2},         PlainType{TensorType::bf16, "BF16", 2},
    PlainType{TensorType::f8_e4m3, "F8_E4M3", 1}, PlainType{TensorType::f8_e5m2, "F8_E5M2", 1},
    PlainType{TensorType::i64, "I64", 8},         PlainType{TensorType::i32, "I32", 4},
    PlainType{TensorType::i16, "I16", 2},         PlainType{TensorType::i8, "I8", 1},
    PlainType{TensorType::u64, "U64", 8},         PlainType{TensorType::u32, "U32", 4},
    PlainType{TensorType::u16, "U16", 2},         PlainType{TensorType::u8, "U8", 1},
    PlainType{TensorType::boolean, "BOOL", 1},    PlainType{TensorType::f8_e8m0, "F8_E8M0", 1},
};

struct ScaledType {
    TensorType type;
    const char* name;
    int64_t elements_per_byte;
};

constexpr std::array kScaledTypes = {
    ScaledType{TensorType::scaled_f8_e4m3, "scaled F8_E4M3", 1},
    ScaledType{TensorType::scaled_f8_e5m2, "scaled F8_E5M2", 1},
    ScaledType{TensorType::scaled_mxfp8, "MXFP8", 1},
    ScaledType{TensorType::scaled_nvfp4, "NVFP4", 2},
    ScaledType{TensorType::scaled_i8, "scaled I8", 1},
};

const PlainType* find_plain(TensorType type) {
    const auto* found = std::find_if(kPlainTypes.begin(), kPlainTypes.end(),
                                     [&](const PlainType& p) { return p.type == type; });
    return found == kPlainTypes.end() ? nullptr : found;
}

const ScaledType* find_scaled(TensorType type) {
    const auto* found = std::find_if(kScaledTypes.begin(), kScaledTypes.end(),
                                     [&](const ScaledType& s) { return s.type == type; });
    return found == kScaledTypes.end() ? nullptr : found;
}

ggml_type to_ggml(TensorType type) {
    return static_cast<ggml_type>(type);
}

bool is_ggml(TensorType type) {
    return type < TensorType::safetensors_only;
}

// An 8-bit float with the given exponent width. "fn" types have no infinity and one NaN pattern.
float decode_f8(uint8_t code, int exponent_bits, bool fn) {
    const int mantissa_bits = 7 - exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int max_exponent = (1 << exponent_bits) - 1;
    const int max_mantissa = (1 << mantissa_bits) - 1;
    const int exponent = (code >> mantissa_bits) & max_exponent;
    const int mantissa = code & max_mantissa;
    const float sign = (code & 0x80) != 0 ? -1.0f : 1.0f;
    if (exponent == max_exponent && !fn) {
        return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                             : std::numeric_limits<float>::quiet_NaN();
    }
    if (exponent == max_exponent && mantissa == max_mantissa) {
        return std::numeric_limits<float>::quiet_NaN();
    }
    const int significand = exponent == 0 ? mantissa : mantissa + max_mantissa + 1;
    const int power = std::max(exponent, 1) - bias - mantissa_bits;
    return sign * std::ldexp(static_cast<float>(significand), power);
}

std::array<float, 256> f8_table(int exponent_bits, bool fn) {
    std::array<float, 256> table{};
    for (size_t code = 0; code < table.size(); ++code) {
        table[code] = decode_f8(static_cast<uint8_t>(code), exponent_bits, fn);
    }
    return table;
}

std::array<float, 256> e8m0_table() {
    std::array<float, 256> table{};
    for (int code = 0; code < 255; ++code) {
        table[static_cast<size_t>(code)] = std::ldexp(1.0f, code - 127);
    }
    table[255] = std::numeric_limits<float>::quiet_NaN();
    return table;
}

std::array<float, 256> i8_table() {
    std::array<float, 256> table{};
    for (size_t code = 0; code < table.size(); ++code) {
        table[code] = static_cast<float>(static_cast<int8_t>(static_cast<uint8_t>(code)));
    }
    return table;
}

void lookup_byte(const std::array<float, 256>& table, std::span<const std::byte> bytes,
                 std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = table[static_cast<uint8_t>(bytes[i])];
    }
}

template <typename T>
void cast_values(std::span<const std::byte> bytes, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        out[i] = static_cast<float>(value);
    }
}

void bf16_values(std::span<const std::byte> bytes, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
        uint16_t high;
        std::memcpy(&high, bytes.data() + 2 * i, sizeof(high));
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(high) << 16);
    }
}

// ggml's converters expect aligned data, which a safetensors file does not promise.
void through_ggml(TensorType type, std::span<const std::byte> bytes, std::span<float> out) {
    const auto convert = ggml_get_type_traits(to_ggml(type))->to_float;
    const auto n = static_cast<int64_t>(out.size());
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0) {
        convert(bytes.data(), out.data(), n);
        return;
    }
    std::vector<std::byte> aligned(bytes.begin(), bytes.end());
    convert(aligned.data(), out.data(), n);
}

// Q8_0 bit for bit as ggml_quantize_chunk makes it, in loops that compilers vectorise. ggml's own
// loop is scalar and several times slower than reading from a disk.
void encode_q8_0(std::span<const float> values, std::span<std::byte> out) {
    constexpr size_t kBlock = 32;
    for (size_t block = 0; block < values.size() / kBlock; ++block) {
        const float* x = values.data() + block * kBlock;
        // Without their sign floats compare like their bits.
        uint32_t largest = 0;
        for (size_t i = 0; i < kBlock; ++i) {
            largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
        }
        const float scale = std::bit_cast<float>(largest) / 127.0f;
        // Smaller scales have an infinite inverse; they are 0 in F16 anyway.
        constexpr float kLeast = 1.0f / std::numeric_limits<float>::max();
        const float inverse = scale > kLeast ? 1.0f / scale : 0.0f;
        std::array<int8_t, kBlock> codes;
        for (size_t i = 0; i < kBlock; ++i) {
            // roundf: half away from zero, by the largest float below one half and truncation.
            const float scaled = x[i] * inverse;
            const float half = std::copysign(0x1.fffffep-2f, scaled);
            codes[i] = static_cast<int8_t>(static_cast<int32_t>(scaled + half));
        }
        const ggml_fp16_t scale16 = ggml_fp32_to_fp16(scale);
        std::byte* target = out.data() + block * (sizeof(scale16) + kBlock);
        std::memcpy(target, &scale16, sizeof(scale16));
        std::memcpy(target + sizeof(scale16), codes.data(), kBlock);
    }
}

}  // namespace

std::optional<TensorType> type_from_gguf(int32_t number) {
    if (number < 0 || number >= GGML_TYPE_COUNT ||
        ggml_blck_size(static_cast<ggml_type>(number)) == 0) {
        return std::nullopt;
    }
    return static_cast<TensorType>(number);
}

std::optional<TensorType> type_from_safetensors(std::string_view dtype) {
    for (const PlainType& plain : kPlainTypes) {
        if (plain.dtype == dtype) {
            return plain.type;
        }
    }
    return std::nullopt;
}

std::string type_name(TensorType type) {
    if (const PlainType* plain = find_plain(type)) {
        return std::string(plain->dtype);
    }
    if (const ScaledType* scaled = find_scaled(type)) {
        return scaled->name;
    }
    return to_upper(ggml_type_name(to_ggml(type)));
}

int64_t block_elements(TensorType type) {
    if (is_ggml(type)) {
        return ggml_blck_size(to_ggml(type));
    }
    const ScaledType* scaled = find_scaled(type);
    return scaled != nullptr ? scaled->elements_per_byte : 1;
}

size_t block_bytes(TensorType type) {
    if (is_ggml(type)) {
        return ggml_type_size(to_ggml(type));
    }
    return is_scaled(type) ? 1 : find_plain(type)->bytes;
}

size_t data_bytes(TensorType type, int64_t n_elements) {
    return static_cast<size_t>(n_elements / block_elements(type)) * block_bytes(type);
}

bool is_quantized(TensorType type) {
    return is_ggml(type) && ggml_is_quantized(to_ggml(type));
}

bool is_scaled(TensorType type) {
    return find_scaled(type) != nullptr;
}

bool is_float(TensorType type) {
    switch (type) {
        case TensorType::f64:
        case TensorType::f32:
        case TensorType::f16:
        case TensorType::bf16:
        case TensorType::f8_e4m3:
        case TensorType::f8_e5m2:
            return true;
        default:
            return false;
    }
}

bool converts_to_f32(TensorType type) {
    if (!is_ggml(type)) {
        return find_plain(type) != nullptr;
    }
    return find_plain(type) != nullptr || ggml_get_type_traits(to_ggml(type))->to_float != nullptr;
}

bool converts_from_f32(TensorType type) {
    const bool integer = type >= TensorType::i8 && type <= TensorType::f64;
    if (!is_ggml(type) || integer) {
        return false;
    }
    // ggml uses these two only for activations in its multiplies.
    const ggml_type own = to_ggml(type);
    return own != GGML_TYPE_Q8_1 && own != GGML_TYPE_Q8_K && !ggml_quantize_requires_imatrix(own);
}

std::vector<TensorType> matrix_types() {
    std::vector<TensorType> types;
    for (int32_t number = 0; number < GGML_TYPE_COUNT; ++number) {
        const auto type = type_from_gguf(number);
        if (type && converts_from_f32(*type)) {
            types.push_back(*type);
        }
    }
    return types;
}

TensorType parse_matrix_type(const std::string& name) {
    std::string known;
    for (const TensorType type : matrix_types()) {
        if (type_name(type) == to_upper(name)) {
            return type;
        }
        known += (known.empty() ? "" : ", ") + type_name(type);
    }
    fail(ErrorKind::bad_argument, "unknown type '", name, "'; choose one of ", known);
}

const std::array<float, 256>& byte_values(TensorType type) {
    static const std::array<float, 256> e4m3 = f8_table(4, true);
    static const std::array<float, 256> e5m2 = f8_table(5, false);
    static const std::array<float, 256> e8m0 = e8m0_table();
    static const std::array<float, 256> i8 = i8_table();
    switch (type) {
        case TensorType::f8_e4m3:
            return e4m3;
        case TensorType::f8_e5m2:
            return e5m2;
        case TensorType::f8_e8m0:
            return e8m0;
        case TensorType::i8:
            return i8;
        default:
            fail(ErrorKind::internal, "no table of values for ", type_name(type));
    }
}

void to_f32(TensorType type, std::span<const std::byte> bytes, std::span<float> out) {
    const auto n = static_cast<int64_t>(out.size());
    check(n % block_elements(type) == 0 && bytes.size() == data_bytes(type, n) &&
              converts_to_f32(type),
          ErrorKind::internal, "to_f32: ", bytes.size(), " bytes of ", type_name(type), " are not ",
          n, " values");
    switch (type) {
        case TensorType::f32:
            std::copy_n(bytes.data(), bytes.size(), std::as_writable_bytes(out).data());
            return;
        case TensorType::bf16:
            return bf16_values(bytes, out);
        case TensorType::f8_e4m3:
        case TensorType::f8_e5m2:
        case TensorType::f8_e8m0:
            return lookup_byte(byte_values(type), bytes, out);
        case TensorType::f64:
            return cast_values<double>(bytes, out);
        case TensorType::i8:
            return cast_values<int8_t>(bytes, out);
        case TensorType::i16:
            return cast_values<int16_t>(bytes, out);
        case TensorType::i32:
            return cast_values<int32_t>(bytes, out);
        case TensorType::i64:
            return cast_values<int64_t>(bytes, out);
        case TensorType::u8:
        case TensorType::boolean:
            return cast_values<uint8_t>(bytes, out);
        case TensorType::u16:
            return cast_values<uint16_t>(bytes, out);
        case TensorType::u32:
            return cast_values<uint32_t>(bytes, out);
        case TensorType::u64:
            return cast_values<uint64_t>(bytes, out);
        default:
            return through_ggml(type, bytes, out);
    }
}

size_t find_not_finite(std::span<const float> values) {
    constexpr uint32_t kExponent = 0x7f800000u;
    constexpr size_t kStep = 4096;
    for (size_t begin = 0; begin < values.size(); begin += kStep) {
        const auto step = values.subspan(begin, std::min(kStep, values.size() - begin));
        // Without their sign floats compare like their bits.
        uint32_t largest = 0;
        for (const float value : step) {
            largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
        }
        if (largest >= kExponent) {
            const auto found = std::find_if_not(step.begin(), step.end(),
                                                [](float value) { return std::isfinite(value); });
            return begin + static_cast<size_t>(found - step.begin());
        }
    }
    return values.size();
}

void from_f32(TensorType type, std::span<const float> values, int64_t row_elements,
              std::span<std::byte> out) {
    const auto n = static_cast<int64_t>(values.size());
    check(is_ggml(type) && n % row_elements == 0 && row_elements % block_elements(type) == 0 &&
              out.size() == data_bytes(type, n),
          ErrorKind::internal, "from_f32: ", n, " values in rows of ", row_elements,
          " do not make ", out.size(), " bytes of ", type_name(type));
    const size_t not_finite = is_quantized(type) ? find_not_finite(values) : values.size();
    if (not_finite < values.size()) {
        fail(ErrorKind::bad_file, "value ", not_finite, " is ", values[not_finite], ", which ",
             type_name(type), " cannot hold");
    }
    if (type == TensorType::q8_0) {
        return encode_q8_0(values, out);
    }
    ggml_quantize_chunk(to_ggml(type), values.data(), out.data(), 0, n / row_elements, row_elements,
                        nullptr);
}

}  // namespace flux2
