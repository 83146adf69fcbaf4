// Products of F32 rows and a plain matrix of any type, and of its transpose, in F32: a tile of the
// matrix at a time is converted into panels, so that there is never a second copy of it. The values
// of a result are the same for any number of threads.
#pragma once

#include <ggml.h>

#include <cstdint>

namespace flux2::cpu {

// Widths of results that they take.
bool suits_unpacked(int64_t n_results);

// The nodes own::linear, with a factor of 1, and own::add_linear.
void unpacked_linear(ggml_tensor* y, int ith, int nth, void* work);
void add_unpacked_linear(ggml_tensor* y, int ith, int nth, void* work);

// The node own::outer_product; u's width must suit.
void outer_product(ggml_tensor* y, int ith, int nth, void* work);

}  // namespace flux2::cpu
