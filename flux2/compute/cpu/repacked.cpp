#include "compute/cpu/repacked.hpp"

#include "compute/cpu/amx_linear.hpp"
#include "compute/cpu/q8_linear.hpp"

namespace flux2::cpu {

bool suits_repacking(const ggml_tensor* matrix) {
    return suits_q8_tiles(matrix) || suits_amx(matrix);
}

void mark_repacked(ggml_tensor* matrix) {
    if (suits_amx(matrix)) {
        mark_amx(matrix);
    } else {
        mark_q8(matrix);
    }
}

bool is_repacked(const ggml_tensor* matrix) {
    return is_repacked_q8(matrix) || is_repacked_amx(matrix);
}

const char* layout_name(const ggml_tensor* matrix) {
    return is_repacked_amx(matrix) ? "AMX tiles" : "Q8_0 tiles";
}

void repack(std::span<const std::byte> rows, ggml_tensor* matrix) {
    if (is_repacked_amx(matrix)) {
        repack_amx(rows, matrix);
    } else {
        repack_q8(rows, matrix);
    }
}

ggml_tensor* linear_repacked(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return is_repacked_amx(w) ? linear_amx(g, w, x) : linear_q8(g, w, x);
}

}  // namespace flux2::cpu
