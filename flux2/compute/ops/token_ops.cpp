#include "compute/ops/token_ops.hpp"

#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/attention.hpp"
#include "compute/cpu/low_rank.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/cpu/token_ops.hpp"
#include "compute/ops/layout_multiply.hpp"
#include "compute/plain/put_node.hpp"
#include "compute/plain/token_nodes.hpp"

#include <algorithm>
#include <cmath>

namespace flux2 {
namespace {

bool is_for_cuda(const Graph& g) {
    return g.form().operations == Operations::cuda;
}

bool is_for_cpu(const Graph& g) {
    return g.form().operations == Operations::cpu;
}

bool is_stock(const Graph& g) {
    return g.form().operations == Operations::stock;
}

// How a node of ours is computed in such a graph: in F32 by the function for CPUs, or in `type` by
// a kernel, else by the plain form.
NodeForm node_form(const Graph& g, ggml_type type, ggml_custom_op_t on_cpu) {
    return is_for_cpu(g) ? NodeForm{.function = on_cpu} : NodeForm{.type = type};
}

// The same for what matrices are multiplied with.
NodeForm activation_form(const Graph& g, ggml_custom_op_t on_cpu) {
    NodeForm form = node_form(g, g.form().activations, on_cpu);
    form.spare_columns = g.form().spare_columns;
    return form;
}

ggml_tensor* as_type(Graph& g, ggml_tensor* x, ggml_type type) {
    return x->type == type ? x : ggml_cast(g, x, type);
}

// ---- Over ggml's operations ----

// Applies f to the columns of each span with its modulation and concatenates the results.
template <typename F>
ggml_tensor* for_spans(Graph& g, ggml_tensor* x, const ModSpans& spans, const F& f) {
    if (spans.size() == 1) {
        return f(x, spans.front().mod);
    }
    ggml_tensor* result = nullptr;
    int64_t first = 0;
    for (const ModSpan& span : spans) {
        ggml_tensor* part = f(columns(g, x, first, span.n), span.mod);
        result = result == nullptr ? part : ggml_concat(g, result, part, 1);
        first += span.n;
    }
    return result;
}

ggml_tensor* rotate_axes(Graph& g, ggml_tensor* x, const Rope& rope) {
    const int64_t part = x->ne[0] / Rope::kMaxAxes;
    ggml_tensor* rotated = nullptr;
    for (size_t i = 0; i < rope.axis.size(); ++i) {
        ggml_tensor* axis = ggml_view_3d(g, x, part, x->ne[1], x->ne[2], x->nb[1], x->nb[2],
                                         ggml_row_size(x->type, part * static_cast<int64_t>(i)));
        axis = ggml_rope_ext(g, axis, rope.axis[i], nullptr, static_cast<int>(part),
                             GGML_ROPE_TYPE_NORMAL, 0, rope.theta, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f);
        rotated = rotated == nullptr ? axis : ggml_concat(g, rotated, axis, 0);
    }
    return rotated;
}

ggml_tensor* rotate(Graph& g, ggml_tensor* x, const Rope& rope) {
    if (rope.axis[1] != nullptr) {
        return rotate_axes(g, x, rope);
    }
    return ggml_rope_ext(g, x, rope.axis[0], nullptr, static_cast<int>(x->ne[0]),
                         rope.halves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 0, rope.theta,
                         1.0f, 0.0f, 1.0f, 0.0f, 0.0f);
}

// [head_dim, n_head, n] -> [head_dim, n, n_head], as a view.
ggml_tensor* heads_last(Graph& g, ggml_tensor* x) {
    return ggml_permute(g, x, 0, 2, 1, 3);
}

float attention_scale(const ggml_tensor* q) {
    return 1.0f / std::sqrt(static_cast<float>(q->ne[0]));
}

// Tokens from `first` on of x [head_dim, n_head, n]; n_tokens of them.
ggml_tensor* tokens(Graph& g, ggml_tensor* x, int64_t first, int64_t n_tokens) {
    return ggml_view_3d(g, x, x->ne[0], x->ne[1], n_tokens, x->nb[1], x->nb[2],
                        static_cast<size_t>(first) * x->nb[2]);
}

ggml_tensor* flash_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    ggml_tensor* o = ggml_flash_attn_ext(g, heads_last(g, q), heads_last(g, k), heads_last(g, v),
                                         nullptr, attention_scale(q), 0.0f, 0.0f);
    ggml_prec_set_acc(o, GGML_PREC_F32);
    return ggml_reshape_2d(g, o, q->ne[0] * q->ne[1], q->ne[2]);  // [head_dim, n_head, n] ->
}

ggml_tensor* cpu_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                           ggml_tensor* mask) {
    if (!g.form().exact && cpu::has_amx()) {
        return cpu::attention_amx(g, q, k, v, mask);
    }
    if (!g.form().exact && mask == nullptr && cpu::has_matrix_tiles()) {
        return cpu::attention_16bit(g, q, k, v);
    }
    return cpu::attention(g, q, k, v, mask);
}

ggml_tensor* plain_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    if (is_for_cpu(g)) {
        return cpu_attention(g, q, k, v, nullptr);
    }
    // The largest pictures have more queries than ggml's Metal backend takes at once: it ends the
    // program from 65536 on.
    constexpr int64_t kMaxQueries = 32768;
    ggml_tensor* result = nullptr;
    for (int64_t first = 0; first < q->ne[2]; first += kMaxQueries) {
        const int64_t n = std::min(kMaxQueries, q->ne[2] - first);
        ggml_tensor* part = flash_attention(g, n == q->ne[2] ? q : tokens(g, q, first, n), k, v);
        result = result == nullptr ? part : ggml_concat(g, result, part, 1);
    }
    return result;
}

ggml_tensor* masked_attention(Graph& g, const AttentionInput& in) {
    if (is_for_cpu(g)) {
        return cpu_attention(g, in.q, in.k, in.v, in.mask);
    }
    ggml_tensor* q = in.q;
    ggml_tensor* scores = ggml_mul_mat(g, heads_last(g, in.k), heads_last(g, q));
    ggml_prec_set_acc(scores, GGML_PREC_F32);  // [n_kv, n, n_head]
    scores = ggml_soft_max_ext(g, scores, in.mask, attention_scale(q), 0.0f);
    // v [head_dim, n_head_kv, n_kv] -> [n_kv, head_dim, n_head_kv]
    ggml_tensor* columns_of_v = ggml_cont(g, ggml_permute(g, in.v, 1, 2, 0, 3));
    ggml_tensor* o = ggml_mul_mat(g, columns_of_v, scores);  // [head_dim, n, n_head]
    o = ggml_cont(g, ggml_permute(g, o, 0, 2, 1, 3));        // [head_dim, n_head, n]
    return ggml_reshape_2d(g, o, q->ne[0] * q->ne[1], q->ne[2]);
}

// For forms that see all keys at once: kept ones are appended, queries that see fewer keys are
// computed separately.
ggml_tensor* joined_attention(Graph& g, const AttentionInput& in) {
    if (in.mask != nullptr) {
        return masked_attention(g, in);
    }
    ggml_tensor* k = in.k;
    ggml_tensor* v = in.v;
    if (in.kept_k != nullptr) {
        k = ggml_concat(g, k, in.kept_k, 2);
        v = ggml_concat(g, ggml_cont(g, v), in.kept_v, 2);
    }
    if (in.n_main == 0) {
        return plain_attention(g, in.q, k, v);
    }
    const int64_t n_rest = k->ne[2] - in.n_main;
    ggml_tensor* main = plain_attention(g, tokens(g, in.q, 0, in.n_main), k, v);
    ggml_tensor* rest =
        plain_attention(g, tokens(g, in.q, in.n_main, n_rest), tokens(g, k, in.n_main, n_rest),
                        tokens(g, v, in.n_main, n_rest));
    return ggml_concat(g, main, rest, 1);
}

}  // namespace

Form choose_form(const Backend& backend, const Weights& weights, int64_t head_dim, int64_t width) {
    Form form = {.operations = backend.operations(),
                 .exact = weights.has_block_matrix(GGML_TYPE_F32)};
    if (form.operations == Operations::cuda) {
        if (form.exact || !own::nodes_support(head_dim, width)) {
            form.operations = Operations::stock;
            return form;
        }
        form.unpacks = backend.device().abilities().unpacks_matrices;
        if (weights.all_block_matrices([&](ggml_type type) {
                return type == GGML_TYPE_BF16 || (form.unpacks && own::can_unpack(type));
            })) {
            form.activations = GGML_TYPE_BF16;
        }
    }
    return form;
}

bool takes_columns(const Form& form) {
    return form.operations == Operations::cuda && form.activations == GGML_TYPE_BF16;
}

namespace {

// Of products that matrices are multiplied with as well: with room after each row like the others,
// so that one can take the memory of another.
NodeForm product_form(const Graph& g, ggml_type to) {
    return {.type = to, .spare_columns = to == g.form().activations ? g.form().spare_columns : 0};
}

bool is_unpacked(const Graph& g, const ggml_tensor* w, const ggml_tensor* x) {
    constexpr int64_t kManyTokens = 256;
    return g.form().unpacks && x->ne[1] >= kManyTokens && own::can_unpack(w->type);
}

// Just before x is multiplied with it, so that there is only one such matrix at a time.
ggml_tensor* unpack_for(Graph& g, ggml_tensor* x, ggml_tensor* w, ggml_tensor* after) {
    g.expand(x);
    return own::unpack(g, w, after);
}

ggml_tensor* multiply(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to) {
    if (is_unpacked(g, w, x)) {
        w = unpack_for(g, x, w, nullptr);
    } else if (w->ne[0] > x->ne[0]) {  // it has columns for a pair that is not there now
        w = ggml_view_2d(g, w, x->ne[0], w->ne[1], w->nb[1], 0);
    }
    if (is_for_cuda(g) && w->type == GGML_TYPE_BF16) {
        return own::linear(g, w, as_type(g, x, w->type), product_form(g, to));
    }
    return as_type(g, multiply_in_layout(g, w, as_type(g, x, GGML_TYPE_F32)), to);
}

// W x + up (down x) where adapters have given the matrix such a pair.
ggml_tensor* linear_to(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_type to) {
    const LowRankTensors* pair = g.low_rank_of(w);
    if (pair == nullptr) {
        return multiply(g, w, x, to);
    }
    if (pair->in_panels) {
        ggml_tensor* y = multiply(g, w, x, GGML_TYPE_F32);
        return as_type(
            g,
            own::add_pair(g, y, as_type(g, x, GGML_TYPE_F32), pair->down, pair->up, cpu::add_pair),
            to);
    }
    const bool joins = pair->joins_unpacked && is_unpacked(g, w, x);
    if (pair->up == nullptr || joins) {
        ggml_tensor* both = joins ? unpack_for(g, x, w, pair->up) : w;
        return own::linear_with_columns(g, both, x, pair->down, product_form(g, to));
    }
    ggml_tensor* y = multiply(g, w, x, GGML_TYPE_F32);
    ggml_tensor* inner = multiply(g, pair->down, x, GGML_TYPE_F32);  // [rank, n]
    return as_type(g, ggml_add(g, y, multiply(g, pair->up, inner, GGML_TYPE_F32)), to);
}

}  // namespace

ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return linear_to(g, w, x, GGML_TYPE_F32);
}

ggml_tensor* linear_activations(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return linear_to(g, w, x, g.form().activations);
}

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps) {
    if (is_for_cuda(g) || (is_for_cpu(g) && ggml_is_matrix(x))) {
        return own::rms_norm(g, x, weight, eps, activation_form(g, cpu::rms_norm));
    }
    return ggml_mul(g, ggml_rms_norm(g, x, eps), weight);
}

ggml_tensor* columns(Graph& g, ggml_tensor* x, int64_t first, int64_t n) {
    return ggml_view_2d(g, x, x->ne[0], n, x->nb[1], static_cast<size_t>(first) * x->nb[1]);
}

ggml_tensor* join_columns(Graph& g, std::span<ggml_tensor* const> parts) {
    ggml_tensor* result = parts.front();
    if (is_stock(g)) {
        for (ggml_tensor* part : parts.subspan(1)) {
            result = ggml_concat(g, result, part, 1);
        }
        return result;
    }
    if (parts.size() == 1) {
        return result;
    }
    int64_t n = 0;
    for (const ggml_tensor* part : parts) {
        n += part->ne[1];
    }
    own::PutParams place = {.axis = 1};
    const bool is_activation = result->type == g.form().activations;
    result = own::begin_put(g, result, n, place, is_activation ? g.form().spare_columns : 0);
    for (size_t i = 1; i < parts.size(); ++i) {
        place.first += parts[i - 1]->ne[1];
        result = own::put(g, result, parts[i], place);
    }
    return result;
}

ggml_tensor* modulate(Graph& g, ggml_tensor* x, const ModSpans& spans) {
    if (!is_stock(g)) {
        return own::modulate(g, x, spans, activation_form(g, cpu::modulate));
    }
    constexpr float kEps = 1e-6f;
    return for_spans(g, x, spans, [&](ggml_tensor* part, const Mod& mod) {
        ggml_tensor* y = ggml_norm(g, part, kEps);
        return ggml_add(g, ggml_add(g, y, ggml_mul(g, y, mod.scale)), mod.shift);
    });
}

ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch, const ModSpans& spans) {
    if (!is_stock(g)) {
        return own::add_gated(g, x, branch, spans, node_form(g, GGML_TYPE_F32, cpu::add_gated));
    }
    return ggml_add(g, x, for_spans(g, branch, spans, [&](ggml_tensor* part, const Mod& mod) {
                        return ggml_mul(g, part, mod.gate);
                    }));
}

ggml_tensor* add_gated_onto(Graph& g, ggml_tensor* x, ggml_tensor* branch, const ModSpans& spans) {
    const bool is_kept = g.keeps_taps() || (x->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
    if (!is_for_cuda(g) || is_kept) {
        return add_gated(g, x, branch, spans);
    }
    return own::add_gated(g, x, branch, spans, {.type = GGML_TYPE_F32, .in_place = true});
}

ggml_tensor* add(Graph& g, ggml_tensor* x, ggml_tensor* branch) {
    if (is_for_cuda(g)) {
        const ModSpan all = {.n = x->ne[1], .mod = {}};
        return own::add_gated(g, x, branch, std::span(&all, 1), {GGML_TYPE_F32});
    }
    return ggml_add(g, x, branch);
}

ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before) {
    if (!is_stock(g)) {
        before = before != nullptr ? as_type(g, before, gate->type) : nullptr;
        return own::swiglu(g, gate, up, before, activation_form(g, cpu::swiglu));
    }
    ggml_tensor* y = ggml_swiglu_split(g, gate, up);
    return before == nullptr ? y : ggml_concat(g, before, y, 0);
}

Rope rope_of_axes(Graph& g, const std::array<ggml_tensor*, Rope::kMaxAxes>& axes, int64_t head_dim,
                  float theta) {
    return {.axis = axes,
            .theta = theta,
            .table = is_stock(g) ? nullptr : own::rope_table(g, axes, head_dim, theta)};
}

Rope rope_of_text(Graph& g, ggml_tensor* positions, int64_t head_dim, float theta, bool halves) {
    return {.axis = {positions},
            .theta = theta,
            .halves = halves,
            .table = is_stock(g) ? nullptr
                                 : own::rope_table(g, std::span(&positions, 1), head_dim, theta)};
}

ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps) {
    const HeadsPart& first = parts.front();
    const bool as_they_are = parts.size() == 1 && first.norm == nullptr && rope == nullptr;
    const ggml_type type = kept_type(g.form());
    if (as_they_are && first.x->type == type) {
        return first.x;
    }
    if (!is_stock(g)) {
        return own::join_heads(g, parts, rope, eps, node_form(g, type, cpu::join_heads));
    }
    ggml_tensor* joined = nullptr;
    for (const HeadsPart& part : parts) {
        ggml_tensor* x = part.norm == nullptr ? part.x : rms_norm(g, part.x, part.norm, eps);
        joined = joined == nullptr ? x : ggml_concat(g, joined, x, 2);
    }
    return rope == nullptr ? joined : rotate(g, joined, *rope);
}

ggml_tensor* attention(Graph& g, const AttentionInput& in) {
    return is_for_cuda(g)
               ? own::attention(g, in,
                                {.type = GGML_TYPE_BF16, .spare_columns = g.form().spare_columns})
               : joined_attention(g, in);
}

ggml_type kept_type(const Form& form) {
    return form.operations == Operations::cuda ? GGML_TYPE_BF16 : GGML_TYPE_F32;
}

ggml_tensor* sliced_attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
    constexpr int64_t kSlice = 1024;
    const int64_t n = q->ne[1];
    ggml_tensor* columns_of_v = ggml_cont(g, ggml_transpose(g, v));  // [n, width]
    ggml_tensor* result = nullptr;
    for (int64_t first = 0; first < n; first += kSlice) {
        ggml_tensor* slice = columns(g, q, first, std::min(kSlice, n - first));
        ggml_tensor* scores = ggml_mul_mat(g, k, slice);  // [n, slice]
        ggml_prec_set_acc(scores, GGML_PREC_F32);
        scores = ggml_soft_max_ext(g, scores, nullptr, attention_scale(q), 0.0f);
        ggml_tensor* part = ggml_mul_mat(g, columns_of_v, scores);  // [width, slice]
        result = result == nullptr ? part : ggml_concat(g, result, part, 1);
        g.expand(result);  // one slice after the other, not all scores first
    }
    return result;
}

}  // namespace flux2
