#include "train/block_passes.hpp"

#include "compute/ops/token_ops.hpp"

#include <array>
#include <span>
#include <string>

namespace flux2 {
namespace {

// The results of f(mod, first, n) for the tokens of each span, one after the other.
template <typename F>
ggml_tensor* of_spans(Graph& g, const ModSpans& spans, const F& f) {
    std::vector<ggml_tensor*> parts;
    int64_t first = 0;
    for (const ModSpan& span : spans) {
        parts.push_back(f(span.mod, first, span.n));
        first += span.n;
    }
    return join_columns(g, parts);
}

// Of add_gated(), for the branch.
ggml_tensor* gated_gradient(Graph& g, const ModSpans& spans, ggml_tensor* d) {
    return of_spans(g, spans, [&](const Mod& mod, int64_t first, int64_t n) {
        return gate_gradient(g, mod, columns(g, d, first, n));
    });
}

// Of modulate(), for x; added to `before`, which may be null.
ggml_tensor* modulated_gradient(Graph& g, ggml_tensor* x, const ModSpans& spans, ggml_tensor* d,
                                ggml_tensor* before) {
    return of_spans(g, spans, [&](const Mod& mod, int64_t first, int64_t n) {
        const auto part = [&](ggml_tensor* of) { return columns(g, of, first, n); };
        return modulate_gradient(g, part(x), mod, part(d),
                                 before == nullptr ? nullptr : part(before));
    });
}

// A matrix of a block with what it is multiplied with.
LinearPass inside(const PassContext& context, ggml_tensor* w, ggml_tensor* x) {
    return LinearPass(context, w, x, trained_type(context.g.form()));
}

// Of A x; factors are F32.
ggml_type inner_type(const PassContext& context) {
    return context.drops ? GGML_TYPE_F32 : trained_type(context.g.form());
}

// What dropout leaves of values between A and B, or of their gradient.
ggml_tensor* left_of(const PassContext& context, const TrainedPair& pair, ggml_tensor* x) {
    if (!context.drops) {
        return x;
    }
    Graph& g = context.g;
    return ggml_mul(g, x->type == GGML_TYPE_F32 ? x : ggml_cast(g, x, GGML_TYPE_F32), pair.dropout);
}

// Each token as a matrix [p, q] of parts, transposed: x [p * q, n] -> [q, p * n]
ggml_tensor* exchanged(Graph& g, ggml_tensor* x, int64_t p) {
    const int64_t q = x->ne[0] / p, n = x->ne[1];
    ggml_tensor* parts = ggml_view_3d(g, x, p, q, n, ggml_row_size(x->type, p), x->nb[1], 0);
    return ggml_reshape_2d(g, ggml_cont(g, ggml_permute(g, parts, 1, 0, 2, 3)), q, p * n);
}

// Of two gradients of the same type, which is kept.
ggml_tensor* sum_of(Graph& g, ggml_tensor* a, ggml_tensor* b) {
    if (a->type == GGML_TYPE_F32) {
        return ggml_add(g, a, b);
    }
    const auto as_f32 = [&](ggml_tensor* x) { return ggml_cast(g, x, GGML_TYPE_F32); };
    return ggml_cast(g, ggml_add(g, as_f32(a), as_f32(b)), a->type);
}

// Values [first, first + n) of every row.
ggml_tensor* rows(Graph& g, ggml_tensor* x, int64_t first, int64_t n) {
    return ggml_view_2d(g, x, n, x->ne[1], x->nb[1], ggml_row_size(x->type, first));
}

// Tokens from `first` on of x [head_dim, n_head, n], without gaps.
ggml_tensor* later_tokens(Graph& g, ggml_tensor* x, int64_t first) {
    return ggml_cont(g, ggml_view_3d(g, x, x->ne[0], x->ne[1], x->ne[2] - first, x->nb[1], x->nb[2],
                                     static_cast<size_t>(first) * x->nb[2]));
}

}  // namespace

// ---- A matrix with its pair ----

LinearPass::LinearPass(const PassContext& context, ggml_tensor* w, ggml_tensor* x, ggml_type to)
    : w_(w), x_(x), y_(exact_linear(context.g, w, x, to)) {
    if (const auto found = context.pairs.find(w); found != context.pairs.end()) {
        TrainedPair& pair = found->second;
        if (pair.w1.matrix != nullptr) {
            add_kronecker(context, pair);
            return;
        }
        if (context.drops && pair.dropout == nullptr) {
            pair.dropout = context.g.input_f32(std::string(w->name) + ".drop",
                                               {pair.a.matrix->ne[1], x->ne[1]});
        }
        inner_ =
            left_of(context, pair, exact_linear(context.g, pair.a.matrix, x, inner_type(context)));
        y_ = add_exact_linear(context.g, y_, pair.b.matrix, inner_);
    }
}

void LinearPass::add_kronecker(const PassContext& context, const TrainedPair& pair) {
    Graph& g = context.g;
    const ggml_type type = trained_type(g.form());
    const int64_t n = x_->ne[1], n_out = y_->ne[0];
    const int64_t i2 = pair.a.matrix->ne[0], o1 = pair.w1.matrix->ne[1];
    exchanged_ = exchanged(g, x_, i2);
    ggml_tensor* mixed = exact_linear(g, pair.w1.matrix, exchanged_, type);  // [o1, i2 * n]
    mixed_ = exchanged(g, ggml_reshape_2d(g, mixed, o1 * i2, n), o1);
    ggml_tensor* y = ggml_reshape_2d(g, y_, n_out / o1, o1 * n);
    if (pair.b.matrix != nullptr) {
        inner_ = exact_linear(g, pair.a.matrix, mixed_, type);  // [rank, o1 * n]
        y = add_exact_linear(g, y, pair.b.matrix, inner_);
    } else {
        y = add_exact_linear(g, y, pair.a.matrix, mixed_);
    }
    y_ = ggml_reshape_2d(g, y, n_out, n);
}

// dB = d (A x)^T and dA = (B^T d) x^T. Returns B^T d, or null without a pair.
ggml_tensor* LinearPass::keep_pair_gradients(const PassContext& context, ggml_tensor* d) const {
    if (inner_ == nullptr) {
        return nullptr;
    }
    Graph& g = context.g;
    TrainedPair& pair = context.pairs.at(w_);
    pair.b.gradient = g.keep(outer_product(g, d, inner_));
    ggml_tensor* d_inner = left_of(context, pair, linear_gradient(g, pair.b.matrix, d));
    pair.a.gradient = g.keep(outer_product(g, x_, d_inner));
    return d_inner;
}

// Keeps the gradients of a LoKr's matrices; returns its part of x's, or null unless wanted.
ggml_tensor* LinearPass::kronecker_gradients(const PassContext& context, TrainedPair& pair,
                                             ggml_tensor* d, bool wants_x) const {
    Graph& g = context.g;
    const int64_t n = x_->ne[1];
    const int64_t i1 = pair.w1.matrix->ne[0], o1 = pair.w1.matrix->ne[1];
    const int64_t i2 = pair.a.matrix->ne[0];
    ggml_tensor* d_pair = ggml_reshape_2d(g, ggml_is_contiguous(d) ? d : ggml_cont(g, d),
                                          d->ne[0] / o1, o1 * n);  // [o2, o1 * n]
    if (pair.b.matrix != nullptr) {
        pair.b.gradient = g.keep(outer_product(g, d_pair, inner_));
        d_pair = linear_gradient(g, pair.b.matrix, d_pair);  // [rank, o1 * n]
    }
    pair.a.gradient = g.keep(outer_product(g, mixed_, d_pair));
    ggml_tensor* d_mixed = linear_gradient(g, pair.a.matrix, d_pair);     // [i2, o1 * n]
    d_mixed = exchanged(g, ggml_reshape_2d(g, d_mixed, i2 * o1, n), i2);  // [o1, i2 * n]
    pair.w1.gradient = g.keep(outer_product(g, exchanged_, d_mixed));
    if (!wants_x) {
        return nullptr;
    }
    ggml_tensor* dx = linear_gradient(g, pair.w1.matrix, d_mixed);  // [i1, i2 * n]
    return ggml_reshape_2d(g, exchanged(g, ggml_reshape_2d(g, dx, i1 * i2, n), i1), i1 * i2, n);
}

void LinearPass::back_to_pair(const PassContext& context, ggml_tensor* d) const {
    if (mixed_ != nullptr) {
        kronecker_gradients(context, context.pairs.at(w_), d, /*wants_x=*/false);
    } else {
        keep_pair_gradients(context, d);
    }
}

ggml_tensor* LinearPass::back(const PassContext& context, ggml_tensor* d) const {
    Graph& g = context.g;
    if (mixed_ != nullptr) {
        ggml_tensor* dx = kronecker_gradients(context, context.pairs.at(w_), d, /*wants_x=*/true);
        return sum_of(g, linear_gradient(g, w_, d), dx);
    }
    ggml_tensor* d_inner = keep_pair_gradients(context, d);
    ggml_tensor* dx = linear_gradient(g, w_, d);
    return d_inner == nullptr ? dx
                              : add_linear_gradient(g, dx, context.pairs.at(w_).a.matrix, d_inner);
}

// ---- Attention ----

AttentionPass::AttentionPass(const PassContext& context, std::span<const ProjectedHeads> parts,
                             int64_t hidden) {
    Graph& g = context.g;
    std::array<std::vector<HeadsPart>, 3> qkv;
    for (const ProjectedHeads& part : parts) {
        ggml_tensor* p = part.projection;
        const int64_t head_dim = part.q_norm->ne[0];
        const std::array norms = {part.q_norm, part.k_norm, static_cast<ggml_tensor*>(nullptr)};
        for (size_t i = 0; i < qkv.size(); ++i) {
            ggml_tensor* heads = ggml_view_3d(
                g, p, head_dim, hidden / head_dim, p->ne[1], ggml_row_size(p->type, head_dim),
                p->nb[1], ggml_row_size(p->type, static_cast<int64_t>(i) * hidden));
            qkv[i].push_back({heads, norms[i]});
        }
    }
    all_ = keep_attention(g, join_heads(g, qkv[0], &context.rope),
                          join_heads(g, qkv[1], &context.rope), join_heads(g, qkv[2], nullptr));
    result_ = all_.result;
    if (context.n_main > 0) {
        const auto later = [&](ggml_tensor* x) { return later_tokens(g, x, context.n_main); };
        references_ = keep_attention(g, later(all_.q), later(all_.k), later(all_.v));
        const std::array both = {columns(g, result_, 0, context.n_main), references_.result};
        result_ = join_columns(g, both);
    }
}

AttentionGradient AttentionPass::back(const PassContext& context, ggml_tensor* d) const {
    Graph& g = context.g;
    const int64_t n_main = context.n_main;
    if (n_main == 0) {
        return attention_gradient(g, all_, d);
    }
    // What references gave among all tokens was not used: its gradient is zero.
    const int64_t n_ref = d->ne[1] - n_main;
    ggml_tensor* d_main = ggml_cast(g, columns(g, d, 0, n_main), GGML_TYPE_F32);
    d_main = ggml_pad_ext(g, d_main, 0, 0, 0, static_cast<int>(n_ref), 0, 0, 0, 0);
    const AttentionGradient main = attention_gradient(g, all_, d_main);
    const AttentionGradient own = attention_gradient(g, references_, columns(g, d, n_main, n_ref));
    const std::array dq = {columns(g, main.dq, 0, n_main), own.dq};
    const std::array dkv = {columns(g, main.dkv, 0, n_main),
                            sum_of(g, columns(g, main.dkv, n_main, n_ref), own.dkv)};
    return {join_columns(g, dq), join_columns(g, dkv)};
}

// ---- Double blocks ----

StreamPass::StreamPass(const PassContext& context, const StreamWeights& weights, ggml_tensor* x,
                       const StreamMods& mods)
    : mods_(mods),
      weights_(&weights),
      x_(x),
      qkv_(inside(context, weights.qkv, modulate(context.g, x, mods.attn))) {}

void StreamPass::finish(const PassContext& context, ggml_tensor* attn) {
    Graph& g = context.g;
    proj_ = inside(context, weights_->proj, attn);
    middle_ = add_gated(context.g, x_, proj_.result(), mods_.attn);
    mlp_in_ = inside(context, weights_->mlp_in, modulate(context.g, middle_, mods_.mlp));
    ggml_tensor* h = mlp_in_.result();  // [2 * mlp, n]
    const int64_t mlp = h->ne[0] / 2;
    mlp_out_ =
        inside(context, weights_->mlp_out, swiglu(g, rows(g, h, 0, mlp), rows(g, h, mlp, mlp)));
    y_ = add_gated(context.g, middle_, mlp_out_.result(), mods_.mlp);
}

ggml_tensor* StreamPass::back_to_attention(const PassContext& context, ggml_tensor* d) {
    Graph& g = context.g;
    ggml_tensor* d_act = mlp_out_.back(context, gated_gradient(g, mods_.mlp, d));  // [mlp, n]
    ggml_tensor* h = mlp_in_.result();
    const int64_t mlp = h->ne[0] / 2;
    ggml_tensor* d_h = swiglu_gradient(g, rows(g, h, 0, mlp), rows(g, h, mlp, mlp), d_act);
    d_middle_ = modulated_gradient(g, middle_, mods_.mlp, mlp_in_.back(context, d_h), d);
    return proj_.back(context, gated_gradient(g, mods_.attn, d_middle_));
}

ggml_tensor* StreamPass::back(const PassContext& context, ggml_tensor* d_projection,
                              bool wants_x) const {
    if (!wants_x) {
        qkv_.back_to_pair(context, d_projection);
        return nullptr;
    }
    return modulated_gradient(context.g, x_, mods_.attn, qkv_.back(context, d_projection),
                              d_middle_);
}

DoublePass::DoublePass(const PassContext& context, const DoubleBlockWeights& weights,
                       const Streams& x, const StreamMods& img_mods, const StreamMods& txt_mods)
    : weights_(&weights),
      img_(context, weights.img, x.img, img_mods),
      txt_(context, weights.txt, x.txt, txt_mods) {
    // One sequence, text first.
    const int64_t n_txt = x.txt->ne[1];
    const ProjectedHeads parts[] = {
        {txt_.projection(), weights.txt.q_norm, weights.txt.k_norm, 0},
        {img_.projection(), weights.img.q_norm, weights.img.k_norm, n_txt}};
    attention_.emplace(context, parts, x.txt->ne[0]);
    txt_.finish(context, columns(context.g, attention_->result(), 0, n_txt));
    img_.finish(context, columns(context.g, attention_->result(), n_txt, x.img->ne[1]));
}

Streams DoublePass::back(const PassContext& context, const Streams& d, bool wants_x) {
    Graph& g = context.g;
    const std::array d_attn = {txt_.back_to_attention(context, d.txt),
                               img_.back_to_attention(context, d.img)};
    const AttentionGradient d_heads = attention_->back(context, join_columns(g, d_attn));
    const auto finish = [&](StreamPass& stream, const StreamWeights& weights, int64_t first) {
        ggml_tensor* d_projection = heads_gradient(
            g, {stream.projection(), weights.q_norm, weights.k_norm, first}, d_heads, context.rope);
        return stream.back(context, d_projection, wants_x);
    };
    ggml_tensor* dx_txt = finish(txt_, weights_->txt, 0);
    return {.img = finish(img_, weights_->img, d.txt->ne[1]), .txt = dx_txt};
}

// ---- Single blocks ----

SinglePass::SinglePass(const PassContext& context, const SingleBlockWeights& weights,
                       ggml_tensor* x, const ModSpans& mod)
    : weights_(&weights),
      mod_(mod),
      x_(x),
      linear1_(inside(context, weights.linear1, modulate(context.g, x, mod))) {
    Graph& g = context.g;
    const int64_t hidden = x->ne[0];
    ggml_tensor* p = linear1_.result();  // [3 * hidden + 2 * mlp, n]
    const int64_t mlp = (p->ne[0] - 3 * hidden) / 2;
    const ProjectedHeads part = {p, weights.q_norm, weights.k_norm, 0};
    attention_.emplace(context, std::span(&part, 1), hidden);
    ggml_tensor* joined = swiglu(g, rows(g, p, 3 * hidden, mlp), rows(g, p, 3 * hidden + mlp, mlp),
                                 attention_->result());  // [hidden + mlp, n]
    linear2_ = inside(context, weights.linear2, joined);
    y_ = add_gated(context.g, x, linear2_.result(), mod);
}

ggml_tensor* SinglePass::back(const PassContext& context, ggml_tensor* d, bool wants_x) const {
    Graph& g = context.g;
    const int64_t hidden = x_->ne[0];
    ggml_tensor* p = linear1_.result();
    const int64_t mlp = (p->ne[0] - 3 * hidden) / 2;
    ggml_tensor* d_joined = linear2_.back(context, gated_gradient(g, mod_, d));
    const AttentionGradient d_heads = attention_->back(context, rows(g, d_joined, 0, hidden));
    ggml_tensor* d_p = heads_gradient(g, {p, weights_->q_norm, weights_->k_norm, 0}, d_heads,
                                      context.rope);  // its first 3 * hidden values
    d_p = swiglu_gradient(g, rows(g, p, 3 * hidden, mlp), rows(g, p, 3 * hidden + mlp, mlp),
                          rows(g, d_joined, hidden, mlp), d_p);
    if (!wants_x) {
        linear1_.back_to_pair(context, d_p);
        return nullptr;
    }
    return modulated_gradient(g, x_, mod_, linear1_.back(context, d_p), d);
}

// ---- Final layer ----

FinalPass::FinalPass(const PassContext& context, ggml_tensor* linear, ggml_tensor* z,
                     const Mod& mod)
    : mod_(mod),
      z_(z),
      linear_(context, linear, modulate(context.g, z, {{z->ne[1], mod}}), GGML_TYPE_F32) {}

ggml_tensor* FinalPass::back(const PassContext& context, ggml_tensor* d) const {
    return modulate_gradient(context.g, z_, mod_, linear_.back(context, d), nullptr);
}

}  // namespace flux2
