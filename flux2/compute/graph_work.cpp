#include "compute/graph_work.hpp"

#include "compute/plain/feature_map_nodes.hpp"
#include "compute/plain/put_node.hpp"
#include "compute/plain/token_nodes.hpp"

#include <optional>

namespace flux2 {
namespace {

// w [k, m, ...], x [k, n, ...] -> [m, n, ...]
MatMul of_mul_mat(const ggml_tensor* y) {
    return {.type = y->src[0]->type,
            .k = y->src[0]->ne[0],
            .m = y->ne[0],
            .n = y->ne[1],
            .n_batch = y->ne[2] * y->ne[3]};
}

// filter [kw, kh, in, out] -> [w, h, out, pictures]
MatMul of_conv_2d(const ggml_tensor* y) {
    const ggml_tensor* filter = y->src[0];
    return {.type = filter->type,
            .k = filter->ne[0] * filter->ne[1] * filter->ne[2],
            .m = filter->ne[3],
            .n = y->ne[0] * y->ne[1] * y->ne[3]};
}

// Of our own nodes: w [in, out] or [out, in], x [in, n]
MatMul of_own_linear(const ggml_tensor* y) {
    const ggml_tensor* w = y->src[0];
    const bool transposed = params_of<own::LinearParams>(y).transposed;
    return {.type = w->type, .k = w->ne[transposed ? 1 : 0], .m = y->ne[0], .n = y->ne[1]};
}

// x [in, w, h] and a packed filter -> [out, w, h]
MatMul of_own_conv(const ggml_tensor* y) {
    const ggml_tensor *x = y->src[0], *packed = y->src[1];
    const int64_t size = params_of<own::ConvParams>(y).size;
    // Packed for CPUs it is F32, whatever it holds.
    const ggml_type type = has_plain_form(y) ? packed->type : packed->src[0]->type;
    return {.type = type, .k = size * size * x->ne[0], .m = y->ne[0], .n = y->ne[1] * y->ne[2]};
}

std::optional<MatMul> of_own_node(const ggml_tensor* y) {
    const OwnOperation* operation = operation_of(y);
    if (operation == &own::kLinear) {
        return of_own_linear(y);
    }
    return operation == &own::kConv ? std::optional(of_own_conv(y)) : std::nullopt;
}

double own_attention_flops(const ggml_tensor* y) {
    return 4 * static_cast<double>(ggml_nelements(y)) *
           static_cast<double>(params_of<own::AttentionParams>(y).n_keys);
}

// q [head_dim, n_q, n_head, batch], k [head_dim, n_kv, ...], v [width, n_kv, ...]: scores, then
// sums of values.
double attention_flops(const ggml_tensor* y) {
    const ggml_tensor* q = y->src[0];
    const ggml_tensor* v = y->src[2];
    const auto n_scores = static_cast<double>(q->ne[1] * v->ne[1] * q->ne[2] * q->ne[3]);
    return 2 * n_scores * static_cast<double>(q->ne[0] + v->ne[0]);
}

bool is_attention(const ggml_tensor& node) {
    return node.op == GGML_OP_FLASH_ATTN_EXT || operation_of(&node) == &own::kAttention;
}

bool is_convolution(const ggml_tensor& node) {
    return node.op == GGML_OP_CONV_2D || operation_of(&node) == &own::kConv;
}

double all_bytes(const ggml_tensor& node) {
    auto bytes = static_cast<double>(ggml_nbytes(&node));
    for (const ggml_tensor* source : node.src) {
        bytes += source != nullptr ? static_cast<double>(ggml_nbytes(source)) : 0;
    }
    return bytes;
}

}  // namespace

double MatMul::flops() const {
    return 2 * static_cast<double>(k) * static_cast<double>(m) * static_cast<double>(n) *
           static_cast<double>(n_batch);
}

GraphWork work_of(const std::vector<const ggml_tensor*>& nodes) {
    GraphWork work;
    const auto add = [&](const MatMul& mat_mul) {
        work.flops += mat_mul.flops();
        ++work.mat_muls[mat_mul];
    };
    for (const ggml_tensor* node : nodes) {
        switch (node->op) {
            case GGML_OP_MUL_MAT:  // convolutions by im2col end in one
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
                } else if (operation_of(node) == &own::kAttention) {
                    work.flops += own_attention_flops(node);
                }
                break;
            default:
                break;
        }
    }
    return work;
}

bool computes(const ggml_tensor& node) {
    return node.op != GGML_OP_NONE && node.op != GGML_OP_VIEW && node.op != GGML_OP_RESHAPE &&
           node.op != GGML_OP_PERMUTE && node.op != GGML_OP_TRANSPOSE;
}

double bytes_touched(const ggml_tensor& node) {
    if (node.op == GGML_OP_GET_ROWS) {
        return 2 * static_cast<double>(ggml_nbytes(&node));  // not all of the table
    }
    if (operation_of(&node) == &own::kPut) {
        return 2 * static_cast<double>(ggml_nbytes(own::put_part(&node)));
    }
    return all_bytes(node);
}

NodeWork work_of_node(const ggml_tensor& node) {
    if (!computes(node)) {
        return {};
    }
    const double flops = work_of({&node}).flops;
    if (flops == 0) {
        return {WorkKind::memory, bytes_touched(node)};
    }
    return {is_attention(node)     ? WorkKind::attention
            : is_convolution(node) ? WorkKind::convolution
                                   : WorkKind::linear,
            flops};
}

WorkAmounts amounts_of(const std::vector<const ggml_tensor*>& nodes) {
    WorkAmounts amounts = {};
    for (const ggml_tensor* node : nodes) {
        const NodeWork work = work_of_node(*node);
        amounts[static_cast<size_t>(work.kind)] += work.amount;
    }
    return amounts;
}

}  // namespace flux2
