#include "checkpoints/scaled_weights.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace flux2 {
namespace {

// E2M1 by code: a sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// The value of each code byte before scaling.
const std::array<float, 256>& code_values(TensorType type) {
    switch (type) {
        case TensorType::scaled_f8_e4m3:
        case TensorType::scaled_mxfp8:
            return byte_values(TensorType::f8_e4m3);
        case TensorType::scaled_f8_e5m2:
            return byte_values(TensorType::f8_e5m2);
        case TensorType::scaled_i8:
            return byte_values(TensorType::i8);
        default:
            fail(ErrorKind::internal, type_name(type), " has no codes of one byte");
    }
}

void decode_nibbles(const ScaledMatrix& matrix, int64_t first, float scale, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
        const size_t element = static_cast<size_t>(first) + i;
        const auto byte = static_cast<uint8_t>(matrix.codes[element / 2]);
        const bool high = (element % 2 == 0) == matrix.high_nibble_first;
        out[i] = kE2m1[high ? byte >> 4 : byte & 15] * scale;
    }
}

void decode_bytes(const ScaledMatrix& matrix, int64_t first, float scale, std::span<float> out) {
    const std::array<float, 256>& values = code_values(matrix.type);
    const auto codes = matrix.codes.subspan(static_cast<size_t>(first), out.size());
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = values[static_cast<uint8_t>(codes[i])] * scale;
    }
}

std::string code_name(TensorType type) {
    switch (type) {
        case TensorType::scaled_f8_e4m3:
            return "FP8 (E4M3)";
        case TensorType::scaled_f8_e5m2:
            return "FP8 (E5M2)";
        case TensorType::scaled_i8:
            return "INT8";
        default:
            return type_name(type);
    }
}

}  // namespace

float ScaleGrid::at(int64_t block_row, int64_t block_column) const {
    int64_t index = block_row * columns + block_column;
    if (tiled) {
        const int64_t tiles_across = (columns + 3) / 4;
        index = (block_row / 128 * tiles_across + block_column / 4) * 512 + block_row % 32 * 16 +
                block_row % 128 / 32 * 4 + block_column % 4;
    }
    const auto at = static_cast<size_t>(index) * block_bytes(type);
    if (type == TensorType::f8_e4m3 || type == TensorType::f8_e8m0) {
        return byte_values(type)[static_cast<uint8_t>(bytes[at])];
    }
    float value = 0;
    if (type == TensorType::f32) {
        std::memcpy(&value, bytes.data() + at, sizeof(value));
    } else {
        to_f32(type, bytes.subspan(at, block_bytes(type)), std::span(&value, 1));
    }
    return value;
}

int64_t ScaledMatrix::rows() const {
    return shape.ne[static_cast<size_t>(std::max(shape.n_dims, 1) - 1)];
}

void ScaledMatrix::read_f32(int64_t first, std::span<float> out) const {
    const int64_t width = columns();
    while (!out.empty()) {
        const int64_t row = first / width;
        const int64_t column = first % width;
        const int64_t to_block_end = scales.block_columns - column % scales.block_columns;
        const int64_t n =
            std::min({static_cast<int64_t>(out.size()), width - column, to_block_end});
        const float scale =
            scales.at(row / scales.block_rows, column / scales.block_columns) * factor;
        const std::span<float> run = out.first(static_cast<size_t>(n));
        if (type == TensorType::scaled_nvfp4) {
            decode_nibbles(*this, first, scale, run);
        } else {
            decode_bytes(*this, first, scale, run);
        }
        for (size_t i = 0; i < run.size() && !column_factors.empty(); ++i) {
            run[i] *= column_factors[static_cast<size_t>(column) + i];
        }
        out = out.subspan(run.size());
        first += n;
    }
}

std::string ScaledMatrix::scheme() const {
    const std::string name = code_name(type);
    if (type == TensorType::scaled_nvfp4) {
        return concat(name, " with a scale per 16 weights, in the order of ",
                      scales.tiled ? "ComfyUI and BFL" : "ModelOpt");
    }
    if (scales.block_columns < columns()) {
        return scales.block_rows == 1
                   ? concat(name, " with a scale per ", scales.block_columns, " weights")
                   : concat(name, " with a scale per ", scales.block_rows, "x",
                            scales.block_columns, " weights");
    }
    return concat(name,
                  scales.block_rows == 1 ? " with a scale per row" : " with one scale per matrix");
}

}  // namespace flux2
