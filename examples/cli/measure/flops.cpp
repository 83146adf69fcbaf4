#include "measure/flops.hpp"

#include "compute/cpu/attention.hpp"
#include "compute/cpu/filter.hpp"
#include "compute/cpu/q8_linear.hpp"
#include "compute/plain/picture_nodes.hpp"
#include "compute/plain/token_nodes.hpp"

#include <optional>

namespace flux2::cli {
namespace {

// w [k, m, ...], x [k, n, ...] -> [m, n, ...]
MatMul of_mul_mat(const ggml_tensor* y) {
    return {.type = y->src[0]->type,
            .k = y->src[0]->ne[0],
            .m = y->ne[0],
            .n = y->ne[1],
            .n_batch = y->ne[2] * y->ne[3]};
}

// kernel [kw, kh, in, out] -> [w, h, out, pictures]
MatMul of_conv_2d(const ggml_tensor* y) {
    const ggml_tensor* kernel = y->src[0];
    return {.type = kernel->type,
            .k = kernel->ne[0] * kernel->ne[1] * kernel->ne[2],
            .m = kernel->ne[3],
            .n = y->ne[0] * y->ne[1] * y->ne[3]};
}

// The same with the channels of a pixel side by side -> [out, w, h]
MatMul of_cpu_conv(const ggml_tensor* y, const ggml_tensor* kernel) {
    return {.type = kernel->type,
            .k = kernel->ne[0] * kernel->ne[1] * kernel->ne[2],
            .m = kernel->ne[3],
            .n = y->ne[1] * y->ne[2]};
}

// Of our own nodes: w [in, out] or [out, in], x [in, n]
MatMul of_own_linear(const ggml_tensor* y) {
    return {.type = y->src[0]->type, .k = y->src[1]->ne[0], .m = y->ne[0], .n = y->ne[1]};
}

// A packed kernel [in, out, taps] -> [out, w, h]
MatMul of_own_conv(const ggml_tensor* y) {
    const ggml_tensor* packed = y->src[1];
    return {.type = packed->type,
            .k = packed->ne[0] * packed->ne[2],
            .m = y->ne[0],
            .n = y->ne[1] * y->ne[2]};
}

std::optional<MatMul> of_own_node(const ggml_tensor* y) {
    if (function_of(y) == own::linear_on_cpu) {
        return of_own_linear(y);
    }
    if (function_of(y) == own::conv_on_cpu) {
        return of_own_conv(y);
    }
    if (const ggml_tensor* w = cpu::q8_matrix_of(y)) {
        return MatMul{.type = w->type, .k = w->ne[0], .m = w->ne[1], .n = y->ne[1]};
    }
    const ggml_tensor* kernel = cpu::kernel_of(y);
    return kernel != nullptr ? std::optional(of_cpu_conv(y, kernel)) : std::nullopt;
}

// q, k and v [head_dim, n_head, n]; every query sees all keys, those kept included
double own_attention_flops(const ggml_tensor* y) {
    const bool has_kept = params_of<own::AttentionParams>(y).has_kept;
    const int64_t n_keys = y->src[1]->ne[2] + (has_kept ? y->src[3]->ne[2] : 0);
    return 4 * static_cast<double>(ggml_nelements(y)) * static_cast<double>(n_keys);
}

// q [head_dim, n_q, n_head, batch], k [head_dim, n_kv, ...], v [width, n_kv, ...]: scores, then
// sums of values.
double attention_flops(const ggml_tensor* y) {
    const ggml_tensor* q = y->src[0];
    const ggml_tensor* v = y->src[2];
    const auto n_scores = static_cast<double>(q->ne[1] * v->ne[1] * q->ne[2] * q->ne[3]);
    return 2 * n_scores * static_cast<double>(q->ne[0] + v->ne[0]);
}

}  // namespace

double MatMul::flops() const {
    return 2 * static_cast<double>(k) * static_cast<double>(m) * static_cast<double>(n) *
           static_cast<double>(n_batch);
}

Work work_of(const std::vector<const ggml_tensor*>& nodes) {
    Work work;
    const auto add = [&](const MatMul& mat_mul) {
        work.flops += mat_mul.flops();
        ++work.mat_muls[mat_mul];
    };
    for (const ggml_tensor* node : nodes) {
        switch (node->op) {
            case GGML_OP_MUL_MAT:  // convolutions by way of im2col end in one
                add(of_mul_mat(node));
                break;
            case GGML_OP_CONV_2D:
                add(of_conv_2d(node));
                break;
            case GGML_OP_FLASH_ATTN_EXT:
                work.flops += attention_flops(node);
                break;
            case GGML_OP_CUSTOM:
                if (const auto mat_mul = of_own_node(node)) {
                    add(*mat_mul);
                } else if (cpu::is_attention(node)) {
                    work.flops += cpu::attention_flops(node);
                } else if (function_of(node) == own::attention_on_cpu) {
                    work.flops += own_attention_flops(node);
                }
                break;
            default:
                break;
        }
    }
    return work;
}

}  // namespace flux2::cli
