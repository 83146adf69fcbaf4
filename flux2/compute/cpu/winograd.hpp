// Convolution 3x3 with steps of 1 and a border of zeros on CPUs, after Winograd and Lavin & Gray
// ("Fast Algorithms for Convolutional Neural Networks", 2015): F(4x4, 3x3).
//
// The idea in one dimension: four results of a filter g of three values over six inputs d are
//
//     y = A^T [(G g) * (B^T d)]
//
// with one multiplication for each of six values, where the plain way needs twelve. It comes from
// multiplying polynomials by way of their values at six points; ours are 0, +-p, +-q and infinity:
//
//     B^T = | ppqq   0   -pp-qq   0     1  0 |    G = | 1    0   0  | / ppqq
//           |  0   -pqq   -qq     p     1  0 |        | 1    p   pp | / 2pp(pp-qq)
//           |  0    pqq   -qq    -p     1  0 |        | 1   -p   pp | / 2pp(pp-qq)
//           |  0   -ppq   -pp     q     1  0 |        | 1    q   qq | / 2qq(qq-pp)
//           |  0    ppq   -pp    -q     1  0 |        | 1   -q   qq | / 2qq(qq-pp)
//           |  0   ppqq    0   -pp-qq   0  1 |        | 0    0   1  |
//
//     A^T = | 1   1    1    1    1   0 |
//           | 0   p   -p    q   -q   0 |
//           | 0  pp   pp   qq   qq   0 |
//           | 0 ppp -ppp  qqq -qqq   1 |
//
// In two dimensions it is done along rows and columns: a tile of 4x4 results takes 36 products per
// pair of channels instead of 144. For each of the 36 the sum over input channels is a matrix
// multiply, tiles x in times in x out.
//
// Over 512 channels in F32 the usual points 1 and 2 err by 4e-6 of the result, p = 5/8 and q = 3/2
// by 1.8e-6, the plain way by 1.2e-6. All entries of B and A are exact in F32.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2::cpu {

// filter [3, 3, in, out] in F16 or F32, x [in, w, h] -> [out, w * scale, h * scale]. `scale` 1 or
// 2: each pixel of x counts as scale x scale pixels. `skip`, of the result's shape, is added; may
// be null.
ggml_tensor* winograd_conv(Graph& g, ggml_tensor* filter, ggml_tensor* bias, ggml_tensor* x,
                           ggml_tensor* skip, int32_t scale);

}  // namespace flux2::cpu
