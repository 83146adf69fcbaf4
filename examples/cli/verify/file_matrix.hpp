// Matrices of every type as files have them, for comparisons.
#pragma once

#include "formats/tensor_type.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flux2::cli {

struct FileMatrix {
    std::vector<std::byte> blocks;
    std::vector<float> values;  // of the blocks
};

// These values, in rows of n_in, rounded to a type. For some types ggml prepares tables before it
// can quantise, which takes seconds, and minutes under emulation: they get random codes instead.
FileMatrix make_file_matrix(TensorType type, int64_t n_in, std::span<const float> values);

}  // namespace flux2::cli
