// Pairs of low rank beside matrices on CPUs: the node y + up (down x) in one pass over y.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

namespace flux2::cpu {

// Whether the columns of a matrix [in, out] divide into panels (compute/cpu/panels).
bool suits_panels(int64_t n_out);
// A matrix [in, out], row after row, as panels of 16 rows each: [16, in, out / 16] in ggml's order.
std::vector<float> pack_panels(std::span<const float> matrix, int64_t n_in);

// The form of own::kAddPair for CPUs; down and up are panels.
void add_pair(ggml_tensor* y, int ith, int nth, void* work);

}  // namespace flux2::cpu
