#include "compute/ops/layout_multiply.hpp"

#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"

namespace flux2 {

ggml_tensor* multiply_in_layout(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    if (cpu::is_repacked(w)) {
        return cpu::linear_repacked(g, w, x);
    }
    if (cpu::is_for_tiles(w)) {
        return cpu::linear_in_tiles(g, w, x);
    }
    ggml_tensor* y = ggml_mul_mat(g, w, x);
    // Sums in F32: residual streams of these models leave the range of F16.
    ggml_prec_set_acc(y, GGML_PREC_F32);
    return y;
}

}  // namespace flux2
