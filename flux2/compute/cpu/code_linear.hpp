// y = W x for matrices of up to 8 bits, where they lie, by compute/cpu/code_panels: rows are
// rounded to 8 bits, or to 16, with a scale for every 32 values, matrices are not rounded, sums are
// F32. The values of a result are the same for any number of threads.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// Whether this CPU multiplies matrices of the type so faster than in any other way: with rows of 8
// bits, and of 16.
bool is_multiplied_as_codes(ggml_type type);
bool is_multiplied_as_wide_codes(ggml_type type);
// Whether it does such a matrix [in, out]: its size must be right too.
bool suits_codes(const ggml_tensor* matrix);

// w [in, out], x [in, n] in F32, whose rows may lie apart -> [out, n] in F32.
ggml_tensor* linear_in_codes(Graph& g, ggml_tensor* w, ggml_tensor* x);

}  // namespace flux2::cpu
