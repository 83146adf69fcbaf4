// What adapters do to a matrix, by the formulas of LyCORIS and peft (docs/lora.md). Matrices are
// [out, in], row after row, in F32. `file` is the adapter's, for errors.
#pragma once

#include "adapters/adapter_module.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// A change of a matrix as the product up * down.
struct LowRankPair {
    int64_t rank = 0;
    std::vector<float> down;  // [rank, in]
    std::vector<float> up;    // [out, rank], factor included
};

// Whether the module changes its matrix by a product of low rank whatever the matrix holds: a LoRA
// without DoRA's magnitude.
bool is_low_rank(const AdapterModule& module);
// Of such a module, for its rows, in the model's order of rows. Throws bad_file for values that are
// not finite.
LowRankPair low_rank_pair(const AdapterModule& module, const std::string& file);

// Changes the module's rows w [n_out, n_in] of a tensor by any kind of module; a size that the file
// does not tell follows from the other. Strength 0 leaves them as they are; set_weight has the same
// effect with any other. Needs memory for up to three times the rows. Throws bad_file for values
// that are not finite.
void apply_module(const AdapterModule& module, const std::string& file, float strength,
                  std::span<float> w);

}  // namespace flux2
