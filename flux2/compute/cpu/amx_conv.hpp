// Convolution with steps of 1 in AMX tiles (compute/cpu/amx_tiles): rows of a tile are neighbouring
// pixels, and a position in the filter is a move of where they are read.
//
// Pixels are sums of two numbers in BF16, and filters too, unless one number holds them exactly, as
// it does where a file has them in BF16.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

struct AmxConvInput {
    ggml_tensor* filter;          // [size, size, in, out] in F16, size 1 or 3
    ggml_tensor* bias;            // [out]
    ggml_tensor* x;               // [in, w, h]
    ggml_tensor* skip = nullptr;  // of the result's shape; is added
    // Both or none: what is convolved is then x after group norm and SiLU, applied to its pixels as
    // they are converted.
    ggml_tensor* norm_weight = nullptr;
    ggml_tensor* norm_bias = nullptr;
};

// -> [out, w * scale, h * scale]; `scale` 1 or 2: each pixel of x counts as scale x scale pixels.
// Only where has_amx().
ggml_tensor* amx_conv(Graph& g, const AmxConvInput& in, int32_t scale);

}  // namespace flux2::cpu
