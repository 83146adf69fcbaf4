#include "output_error.hpp"

#include "base/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace flux2::convert {
namespace {

using enum TensorType;

constexpr int64_t kMostRows = 256;
constexpr int64_t kMostValues = 1 << 20;
constexpr uint64_t kSeed = 1;

// Columns that carry a gated product; they are the last ones.
int64_t gated_columns(const std::string& name, const Shape& shape) {
    if (name.ends_with("_mlp.2.weight") || name.ends_with(".ffn_down.weight")) {
        return shape.ne[0];
    }
    // The columns for attention's output, as many as the block is wide, come before the MLP's.
    return name.ends_with(".linear2.weight") ? shape.ne[0] - shape.ne[1] : 0;
}

float silu(float x) {
    return x / (1 + std::exp(-x));
}

// The sum of squares of W x over all rows and inputs.
double output_energy(std::span<const float> rows, size_t row_elements,
                     std::span<const float> inputs) {
    double sum = 0;
    for (size_t first = 0; first < rows.size(); first += row_elements) {
        std::array<float, kInputs> output = {};
        for (size_t column = 0; column < row_elements; ++column) {
            const float weight = rows[first + column];
            for (size_t i = 0; i < kInputs; ++i) {
                output[i] += weight * inputs[column * kInputs + i];
            }
        }
        for (const float value : output) {
            sum += static_cast<double>(value) * static_cast<double>(value);
        }
    }
    return sum;
}

}  // namespace

std::vector<TensorType> candidate_types(int64_t row_elements) {
    if (row_elements % block_elements(q2_k) == 0) {
        return {q2_k, q3_k, q4_k, q5_k, q6_k, q8_0};
    }
    if (row_elements % block_elements(q8_0) == 0) {
        return {q4_0, q5_0, q8_0};
    }
    return {};
}

std::vector<float> sample_rows(const ModelTensor& matrix) {
    const int64_t row = matrix.shape.ne[0];
    const int64_t n_rows = matrix.shape.rows();
    const int64_t n = std::clamp<int64_t>(kMostValues / row, 1, std::min(kMostRows, n_rows));
    std::vector<float> values(static_cast<size_t>(n * row));
    for (int64_t i = 0; i < n; ++i) {
        const auto into = std::span(values).subspan(static_cast<size_t>(i * row));
        matrix.read_f32(i * n_rows / n * row, into.first(static_cast<size_t>(row)));
    }
    return values;
}

std::vector<float> typical_inputs(const std::string& name, const Shape& shape) {
    const auto n = static_cast<size_t>(shape.ne[0]) * kInputs;
    const size_t n_gated = static_cast<size_t>(gated_columns(name, shape)) * kInputs;
    std::vector<float> inputs = draw_normal(Generator::cpu_f32, kSeed, n);
    if (n_gated > 0) {
        const std::vector<float> factors = draw_normal(Generator::cpu_f32, kSeed + 1, n_gated);
        for (size_t i = 0; i < n_gated; ++i) {
            float& value = inputs[n - n_gated + i];
            value = silu(value) * factors[i];
        }
    }
    return inputs;
}

double output_error(TensorType type, std::span<const float> rows, int64_t row_elements,
                    std::span<const float> inputs) {
    std::vector<std::byte> encoded(data_bytes(type, static_cast<int64_t>(rows.size())));
    from_f32(type, rows, row_elements, encoded);
    std::vector<float> difference(rows.size());
    to_f32(type, encoded, difference);
    for (size_t i = 0; i < rows.size(); ++i) {
        difference[i] -= rows[i];
    }
    const auto row = static_cast<size_t>(row_elements);
    const double lost = output_energy(difference, row, inputs);
    // A matrix of zeros has no output to compare with.
    return lost > 0 ? std::sqrt(lost / output_energy(rows, row, inputs)) : 0;
}

}  // namespace flux2::convert
