// The directory of a tensor file: names, types, shapes and positions of the data.
#pragma once

#include "base/shape.hpp"
#include "formats/metadata.hpp"
#include "formats/tensor_type.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace flux2 {

struct TensorInfo {
    std::string name;
    TensorType type = TensorType::f32;
    Shape shape;
    std::span<const std::byte> bytes;  // in the mapped file
};

// A validated directory: every tensor's bytes lie inside the file, have the size its type and
// shape need, and overlap no other tensor's.
struct TensorDirectory {
    std::vector<TensorInfo> tensors;
    Metadata metadata;
};

// The checks both formats share. `where` is "FILE: tensor NAME". Each throws bad_file.
void check_name(const std::string& where, const std::string& name);
void check_dims(const std::string& where, uint64_t n_dims);
// Appends a dimension; refuses a negative size or a product that overflows.
void append_dim_slowest(const std::string& where, Shape& shape, int64_t size);
// Elements in whole blocks -> bytes; refuses rows that split a block and products that overflow.
uint64_t checked_data_bytes(const std::string& where, TensorType type, const Shape& shape);
void check_no_overlap(const std::string& file, const std::vector<TensorInfo>& tensors);

}  // namespace flux2
