// Weights in the schemes of docs/formats.md, written and read back by formulas of their own, so
// that nothing here shares code with the readers under test.
#pragma once

#include "support/support.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace flux2::test {

// The value of a code, by the bits of its type.
double e4m3(uint8_t code);
double e5m2(uint8_t code);
double e2m1(uint8_t code);  // 4 bits

// The code whose value is nearest.
uint8_t nearest_e4m3(double value);
uint8_t nearest_e2m1(double value);

// Where the scale of block (row, column) lies in the tiles of 128 rows by 4 columns.
size_t tiled_index(int64_t row, int64_t column, int64_t columns);

// A tensor with its scales, and the values they stand for.
struct Encoded {
    std::vector<TestTensor> tensors;
    std::vector<float> values;
};

std::vector<float> floats_of(const TestTensor& tensor);  // F32 or BF16
TestTensor scalar(const std::string& name, float value);

// Of the tensor X.weight [in, out], F32 or BF16, make X.weight in the scheme and what belongs to
// it.
enum class Order { comfy, modelopt };
Encoded as_scaled_fp8(const TestTensor& weight, const std::string& spelling = ".weight_scale");
Encoded as_plain_fp8(const TestTensor& weight);
Encoded as_nvfp4(const TestTensor& weight, Order order);

// The same tensor with other values, rounded to BF16.
TestTensor as_bf16(const TestTensor& tensor, const std::vector<float>& values);

}  // namespace flux2::test
