#include "compute/ops/gradient_ops.hpp"

#include "compute/cpu/attention.hpp"
#include "compute/cpu/gradient_ops.hpp"
#include "compute/cpu/unpacked_linear.hpp"
#include "compute/plain/gradient_nodes.hpp"
#include "compute/plain/token_nodes.hpp"

namespace flux2 {
namespace {

bool is_for_cpu(const Graph& g) {
    return g.form().operations == Operations::cpu;
}

bool is_for_cuda(const Graph& g) {
    return g.form().operations == Operations::cuda;
}

// On a CPU its function, else the plain form, or a kernel of the type that it gives there.
NodeForm form_of(const Graph& g, ggml_custom_op_t on_cpu, ggml_type on_cuda) {
    return {.type = is_for_cuda(g) ? on_cuda : GGML_TYPE_F32,
            .function = is_for_cpu(g) ? on_cpu : nullptr};
}

// What kernels take; elsewhere as it is.
ggml_tensor* as_trained(Graph& g, ggml_tensor* x) {
    const ggml_type type = trained_type(g.form());
    return x->type == type || !is_for_cuda(g) ? x : ggml_cast(g, x, type);
}

ggml_custom_op_t product_function(const Graph& g, int64_t n_results, ggml_custom_op_t on_cpu) {
    return is_for_cpu(g) && cpu::suits_unpacked(n_results) ? on_cpu : nullptr;
}

ggml_tensor* product(Graph& g, ggml_tensor* w, ggml_tensor* x, bool transposed, ggml_type to) {
    const int64_t n = w->ne[transposed ? 0 : 1];
    return own::linear(g, as_matrix(g, w), as_trained(g, x),
                       {.type = is_for_cuda(g) ? to : GGML_TYPE_F32,
                        .function = product_function(g, n, cpu::unpacked_linear)},
                       {.transposed = transposed});
}

ggml_tensor* add_product(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x,
                         bool transposed) {
    return own::add_linear(g, y, as_matrix(g, w), as_trained(g, x),
                           product_function(g, y->ne[0], cpu::add_unpacked_linear),
                           {.transposed = transposed});
}

}  // namespace

ggml_type trained_type(const Form& form) {
    return form.operations == Operations::cuda ? GGML_TYPE_BF16 : GGML_TYPE_F32;
}

ggml_tensor* as_matrix(Graph& g, ggml_tensor* w) {
    return is_for_cuda(g) && w->type != GGML_TYPE_BF16 ? own::unpack(g, w, nullptr) : w;
}

ggml_tensor* exact_linear(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to) {
    return product(g, w, x, false, to);
}

ggml_tensor* add_exact_linear(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x) {
    return add_product(g, y, w, x, false);
}

ggml_tensor* linear_gradient(Graph& g, ggml_tensor* w, ggml_tensor* d) {
    return product(g, w, d, true, trained_type(g.form()));
}

ggml_tensor* add_linear_gradient(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* d) {
    return add_product(g, y, w, d, true);
}

ggml_tensor* outer_product(Graph& g, ggml_tensor* u, ggml_tensor* v) {
    return own::outer_product(g, as_trained(g, u), as_trained(g, v),
                              {.function = product_function(g, u->ne[0], cpu::outer_product)});
}

ggml_tensor* gate_gradient(Graph& g, const Mod& mod, ggml_tensor* d) {
    return is_for_cpu(g) ? ggml_mul(g, d, mod.gate)
                         : own::scale_rows(g, d, mod.gate, form_of(g, nullptr, GGML_TYPE_BF16));
}

ggml_tensor* modulate_gradient(Graph& g, ggml_tensor* x, const Mod& mod, ggml_tensor* d,
                               ggml_tensor* before) {
    return own::modulate_gradient(g, x, mod.scale, d, before,
                                  form_of(g, cpu::modulate_gradient, GGML_TYPE_F32));
}

ggml_tensor* swiglu_gradient(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* d,
                             ggml_tensor* into) {
    return own::swiglu_gradient(g, as_trained(g, gate), as_trained(g, up), as_trained(g, d), into,
                                form_of(g, cpu::swiglu_gradient, GGML_TYPE_BF16));
}

KeptAttention keep_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    q = as_trained(g, q);
    k = as_trained(g, k);
    v = as_trained(g, v);
    ggml_tensor* kept = is_for_cpu(g)
                            ? cpu::attention(g, q, k, v, nullptr, /*keeps_sums=*/true)
                            : own::attention(g, {.q = q, .k = k, .v = v},
                                             form_of(g, nullptr, GGML_TYPE_BF16), {}, true);
    ggml_tensor* result = ggml_view_2d(g, kept, q->ne[0] * q->ne[1], kept->ne[1], kept->nb[1], 0);
    return {q, k, v, kept, result};
}

AttentionGradient attention_gradient(Graph& g, const KeptAttention& attention, ggml_tensor* d) {
    const own::AttentionGradientInput in = {attention.q, attention.k, attention.v, attention.kept,
                                            as_trained(g, d)};
    if (is_for_cpu(g)) {
        return {cpu::query_gradient(g, in), cpu::key_gradient(g, in)};
    }
    const NodeForm form = form_of(g, nullptr, GGML_TYPE_BF16);
    return {own::query_gradient(g, in, form), own::key_gradient(g, in, form)};
}

ggml_tensor* heads_gradient(Graph& g, const ProjectedHeads& heads, const AttentionGradient& d,
                            const Rope& rope, float eps) {
    return own::heads_gradient(g,
                               {.dq = as_trained(g, d.dq),
                                .dkv = as_trained(g, d.dkv),
                                .projection = as_trained(g, heads.projection),
                                .q_norm = heads.q_norm,
                                .k_norm = heads.k_norm,
                                .table = rope.table,
                                .first = heads.first},
                               eps, form_of(g, cpu::heads_gradient, GGML_TYPE_BF16));
}

}  // namespace flux2
