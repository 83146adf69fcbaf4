// Element types of both file formats, their sizes, and conversion to and from F32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Values below safetensors_only are ggml_type values; the cast to and from ggml_type is exact. Only
// types that our code refers to are listed here.
enum class TensorType : int32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq4_nl = 20,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    bf16 = 30,
    mxfp4 = 39,
    safetensors_only = 1000,
    f8_e4m3 = 1000,
    f8_e5m2 = 1001,
    u8 = 1002,
    u16 = 1003,
    u32 = 1004,
    u64 = 1005,
    boolean = 1006,
    f8_e8m0 = 1007,
    // Codes whose scales are in other tensors: checkpoints/scaled_weights reads them, to_f32 does
    // not.
    scaled_f8_e4m3 = 1010,
    scaled_f8_e5m2 = 1011,
    scaled_mxfp8 = 1012,
    scaled_nvfp4 = 1013,
    scaled_i8 = 1014,
};

// The type a GGUF file means by this number; nothing when ggml does not know it.
std::optional<TensorType> type_from_gguf(int32_t number);
// The type a safetensors header means by this name ("BF16"); nothing when unknown.
std::optional<TensorType> type_from_safetensors(std::string_view dtype);

// "Q8_0", "BF16", "F8_E4M3".
std::string type_name(TensorType type);

// Elements that share one block, and the bytes of that block; 1 element for plain types.
int64_t block_elements(TensorType type);
size_t block_bytes(TensorType type);

// Bytes of n_elements values, which must be whole blocks.
size_t data_bytes(TensorType type, int64_t n_elements);

// One of ggml's types that are stored in blocks with shared scales, so values have been rounded.
bool is_quantized(TensorType type);
// One of the types whose scales are in other tensors.
bool is_scaled(TensorType type);
bool is_float(TensorType type);

// Whether to_f32 can read this type.
bool converts_to_f32(TensorType type);

// Whether from_f32 can write it: a ggml type that needs no importance matrix.
bool converts_from_f32(TensorType type);

// All that from_f32 can write, which matrices in memory may have.
std::vector<TensorType> matrix_types();
// The one a user names ("BF16", "q8_0"). Throws bad_argument, listing them.
TensorType parse_matrix_type(const std::string& name);

// The values of the 256 codes of f8_e4m3, f8_e5m2, f8_e8m0 or i8.
const std::array<float, 256>& byte_values(TensorType type);

// Converts whole blocks; bytes need no alignment and out.size() is their number of elements.
void to_f32(TensorType type, std::span<const std::byte> bytes, std::span<float> out);

// The index of the first value that is infinite or no number; values.size() when all are finite.
size_t find_not_finite(std::span<const float> values);

// The inverse for whole blocks, as ggml_quantize_chunk does without an importance matrix.
// values.size() is a multiple of row_elements. Throws bad_file for a value that is not finite when
// the type is one of blocks, whose codes are integers.
void from_f32(TensorType type, std::span<const float> values, int64_t row_elements,
              std::span<std::byte> out);

}  // namespace flux2
