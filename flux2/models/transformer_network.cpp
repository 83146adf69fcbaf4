#include "models/transformer_network.hpp"

#include <cmath>
#include <span>
#include <string>

namespace flux2 {

// ---- Weights ----

namespace {

StreamWeights load_stream(Weights& w, const std::string& p) {
    return {.qkv = w.matrix(p + "_attn.qkv.weight"),
            .q_norm = w.vector(p + "_attn.norm.query_norm.scale"),
            .k_norm = w.vector(p + "_attn.norm.key_norm.scale"),
            .proj = w.matrix(p + "_attn.proj.weight"),
            .mlp_in = w.matrix(p + "_mlp.0.weight"),
            .mlp_out = w.matrix(p + "_mlp.2.weight")};
}

SingleBlockWeights load_single(Weights& w, const std::string& p) {
    return {.linear1 = w.matrix(p + ".linear1.weight"),
            .linear2 = w.matrix(p + ".linear2.weight"),
            .q_norm = w.vector(p + ".norm.query_norm.scale"),
            .k_norm = w.vector(p + ".norm.key_norm.scale")};
}

EmbedderWeights load_embedder(Weights& w, const std::string& p) {
    return {.in_layer = w.matrix(p + ".in_layer.weight"),
            .out_layer = w.matrix(p + ".out_layer.weight")};
}

}  // namespace

TransformerNetwork load_network(const std::function<Weights&(size_t)>& of_block,
                                const TransformerSizes& s) {
    TransformerNetwork n;
    Weights& w = of_block(0);
    n.img_in = w.matrix("img_in.weight");
    n.txt_in = w.matrix("txt_in.weight");
    n.time_in = load_embedder(w, "time_in");
    if (s.guidance) {
        n.guidance_in = load_embedder(w, "guidance_in");
    }
    n.mod_img = w.matrix("double_stream_modulation_img.lin.weight");
    n.mod_txt = w.matrix("double_stream_modulation_txt.lin.weight");
    n.mod_single = w.matrix("single_stream_modulation.lin.weight");
    for (int64_t i = 0; i < s.n_double; ++i) {
        const std::string p = "double_blocks." + std::to_string(i);
        Weights& held = of_block(static_cast<size_t>(i));
        held.begin_block();
        n.double_blocks.push_back({load_stream(held, p + ".img"), load_stream(held, p + ".txt")});
    }
    for (int64_t i = 0; i < s.n_single; ++i) {
        Weights& held = of_block(static_cast<size_t>(s.n_double + i));
        held.begin_block();
        n.single_blocks.push_back(load_single(held, "single_blocks." + std::to_string(i)));
    }
    Weights& last = of_block(static_cast<size_t>(s.n_double + s.n_single - 1));
    w.end_blocks();
    last.end_blocks();
    n.final_mod = w.matrix("final_layer.adaLN_modulation.1.weight");
    n.final_linear = last.matrix("final_layer.linear.weight");
    return n;
}

// ---- Modulation ----

namespace {

struct StreamMod {  // of one stream of a double block
    ModSpans attn, mlp;
};

// Chunk i of a projection m [n_chunks * hidden], as a vector [hidden].
ggml_tensor* chunk(Graph& g, ggml_tensor* m, int64_t hidden, int64_t i) {
    return ggml_view_1d(g, m, hidden, ggml_row_size(m->type, i * hidden));
}

// Three chunks from number `first` on: shift, scale, gate.
Mod mod_chunks(Graph& g, ggml_tensor* m, int64_t hidden, int64_t first) {
    return {chunk(g, m, hidden, first), chunk(g, m, hidden, first + 1),
            chunk(g, m, hidden, first + 2)};
}

// ---- Attention ----

// The projection [at least 3 * hidden, n] of a range of tokens, and the norms of its heads.
struct Projected {
    ggml_tensor *qkv, *q_norm, *k_norm;
};

// Rows [i * hidden, (i + 1) * hidden) of a projection as heads [head_dim, n_head, n].
ggml_tensor* heads(Graph& g, const Projected& p, int64_t hidden, int64_t i) {
    const int64_t head_dim = p.q_norm->ne[0];
    return ggml_view_3d(g, p.qkv, head_dim, hidden / head_dim, p.qkv->ne[1],
                        ggml_row_size(p.qkv->type, head_dim), p.qkv->nb[1],
                        ggml_row_size(p.qkv->type, i * hidden));
}

// Tokens [first, first + n) of x [head_dim, n_head, N].
ggml_tensor* tokens(Graph& g, ggml_tensor* x, int64_t first, int64_t n) {
    return ggml_view_3d(g, x, x->ne[0], x->ne[1], n, x->nb[1], x->nb[2],
                        static_cast<size_t>(first) * x->nb[2]);
}

// Part i of n equal parts of the columns of x.
ggml_tensor* equal_part(Graph& g, ggml_tensor* x, int64_t i, int64_t n) {
    const int64_t n_columns = x->ne[1] / n;
    return n == 1 ? x : columns(g, x, i * n_columns, n_columns);
}

// Joint attention of sequence i in a block -> [hidden, n]. `cached` is this block's place in the KV
// cache.
ggml_tensor* attend(Graph& g, std::span<const Projected> parts, int64_t hidden, int64_t i,
                    const AttentionLayout& layout, const CachedKv& cached) {
    std::vector<HeadsPart> q, k, v;
    for (Projected part : parts) {
        part.qkv = equal_part(g, part.qkv, i, layout.n_sequences);
        q.push_back({heads(g, part, hidden, 0), part.q_norm});
        k.push_back({heads(g, part, hidden, 1), part.k_norm});
        v.push_back({heads(g, part, hidden, 2), nullptr});
    }
    AttentionInput in = {.q = join_heads(g, q, &layout.rope),
                         .k = join_heads(g, k, &layout.rope),
                         .v = join_heads(g, v, nullptr)};
    if (layout.mode == ReferenceMode::cached) {
        in.kept_k = cached.k;
        in.kept_v = cached.v;
    }
    if (layout.mode == ReferenceMode::extract) {
        in.n_main = layout.n_txt + layout.n_img;
        g.expand(ggml_cpy(g, tokens(g, in.k, in.n_main, layout.n_ref), cached.k));
        g.expand(ggml_cpy(g, tokens(g, in.v, in.n_main, layout.n_ref), cached.v));
    }
    return attention(g, in);
}

// ---- Blocks ----

// The two halves of a projection h [2 * mlp, n], the first of which gates the second.
ggml_tensor* gated_half(Graph& g, ggml_tensor* h, ggml_tensor* before = nullptr) {
    const int64_t mlp = h->ne[0] / 2;
    const auto half = [&](int64_t i) {
        return ggml_view_2d(g, h, mlp, h->ne[1], h->nb[1], ggml_row_size(h->type, i * mlp));
    };
    return swiglu(g, half(0), half(1), before);
}

// Adds the attention branch, then the MLP branch, each through its gate. x, attn [hidden, n].
ggml_tensor* add_branches(Graph& g, const StreamWeights& w, ggml_tensor* x, ggml_tensor* attn,
                          const StreamMod& mod) {
    x = add_gated_onto(g, x, linear_activations(g, w.proj, attn), mod.attn);
    ggml_tensor* h = linear_activations(g, w.mlp_in, modulate(g, x, mod.mlp));  // [2 * mlp, n]
    h = linear_activations(g, w.mlp_out, gated_half(g, h));                     // [hidden, n]
    return add_gated_onto(g, x, h, mod.mlp);
}

// Joint block: image and text keep their own weights and meet once, in attention.
Streams double_block(Graph& g, const DoubleBlockWeights& w, Streams x, const StreamMod& img_mod,
                     const StreamMod& txt_mod, const AttentionLayout& layout,
                     const CachedKv& cached) {
    const auto project = [&](const StreamWeights& s, ggml_tensor* stream, const StreamMod& mod) {
        ggml_tensor* qkv = linear_activations(g, s.qkv, modulate(g, stream, mod.attn));
        return Projected{qkv, s.q_norm, s.k_norm};  // [3 * hidden, n]
    };
    // One sequence, text first.
    const Projected parts[] = {project(w.txt, x.txt, txt_mod), project(w.img, x.img, img_mod)};
    const int64_t n_img = layout.n_img + layout.n_ref;
    std::vector<ggml_tensor*> txt, img;
    for (int64_t i = 0; i < layout.n_sequences; ++i) {
        ggml_tensor* attn = attend(g, parts, x.txt->ne[0], i, layout, cached);  // [hidden, n]
        // Each stream goes on with its own columns.
        txt.push_back(columns(g, attn, 0, layout.n_txt));
        img.push_back(columns(g, attn, layout.n_txt, n_img));
    }
    x.txt = add_branches(g, w.txt, x.txt, join_columns(g, txt), txt_mod);
    x.img = add_branches(g, w.img, x.img, join_columns(g, img), img_mod);
    return x;
}

// Attention and MLP in parallel, from one projection. x [hidden, n].
ggml_tensor* single_block(Graph& g, const SingleBlockWeights& w, ggml_tensor* x,
                          const ModSpans& mod, const AttentionLayout& layout,
                          const CachedKv& cached) {
    const int64_t hidden = x->ne[0];
    ggml_tensor* p = linear_activations(g, w.linear1, modulate(g, x, mod));
    const Projected part = {p, w.q_norm, w.k_norm};  // [3 * hidden + 2 * mlp, n]
    std::vector<ggml_tensor*> attn;                  // [hidden, n] each
    for (int64_t i = 0; i < layout.n_sequences; ++i) {
        attn.push_back(attend(g, std::span(&part, 1), hidden, i, layout, cached));
    }
    ggml_tensor* mlp = ggml_view_2d(g, p, p->ne[0] - 3 * hidden, p->ne[1], p->nb[1],
                                    ggml_row_size(p->type, 3 * hidden));  // [2 * mlp, n]
    ggml_tensor* joined = gated_half(g, mlp, join_columns(g, attn));      // [hidden + mlp, n]
    return add_gated_onto(g, x, linear_activations(g, w.linear2, joined), mod);
}

// The modulation of each range of tokens; of mods that are null nothing.
struct StepMods {
    StreamMod img, txt;
    ModSpans single;
};

StepMods step_mods(Graph& g, const TimeMods& mods, int64_t hidden, const AttentionLayout& layout) {
    const int64_t n_img =
        layout.n_sequences *
        (layout.mode == ReferenceMode::joint ? layout.n_img + layout.n_ref : layout.n_img);
    const int64_t n_txt = layout.n_sequences * layout.n_txt;
    const auto add = [&](ModSpans& spans, ggml_tensor* projected, int64_t n, int64_t first) {
        if (projected != nullptr) {
            spans.push_back({n, mod_chunks(g, projected, hidden, first)});
        }
    };
    StepMods result;
    add(result.img.attn, mods.img, n_img, 0);
    add(result.img.mlp, mods.img, n_img, 3);
    add(result.txt.attn, mods.txt, n_txt, 0);
    add(result.txt.mlp, mods.txt, n_txt, 3);
    add(result.single, mods.single, n_txt + n_img, 0);
    add(result.img.attn, mods.img_zero, layout.n_ref, 0);
    add(result.img.mlp, mods.img_zero, layout.n_ref, 3);
    add(result.single, mods.single_zero, layout.n_ref, 0);
    return result;
}

// vec = out(silu(in(e))) of an embedded value e [256] -> [hidden]
ggml_tensor* embed(Graph& g, const EmbedderWeights& w, ggml_tensor* e) {
    return linear(g, w.out_layer, ggml_silu(g, linear(g, w.in_layer, e)));
}

// The conditioning vector of a time, with the guidance where the model takes it. -> [hidden]
ggml_tensor* condition(Graph& g, const TransformerNetwork& n, const StepInputs& in,
                       ggml_tensor* time) {
    ggml_tensor* vec = embed(g, n.time_in, time);
    return in.guidance == nullptr ? vec : ggml_add(g, vec, embed(g, n.guidance_in, in.guidance));
}

// LayerNorm, modulated once more, and back to latent channels. z [hidden, n] -> [channels, n]
ggml_tensor* final_layer(Graph& g, const TransformerNetwork& n, ggml_tensor* z, ggml_tensor* mod) {
    const int64_t hidden = z->ne[0];
    const ModSpans all = {
        {z->ne[1], {chunk(g, mod, hidden, 0), chunk(g, mod, hidden, 1), nullptr}}};
    return linear(g, n.final_linear, modulate(g, z, all));
}

// The tokens of every picture once with each text: first all pictures with the first text.
Streams every_sequence(Graph& g, const Streams& x, int64_t n_pictures, int64_t n_texts) {
    std::vector<ggml_tensor*> img, txt;
    for (int64_t text = 0; text < n_texts; ++text) {
        img.push_back(x.img);
        txt.insert(txt.end(), static_cast<size_t>(n_pictures), equal_part(g, x.txt, text, n_texts));
    }
    return {.img = join_columns(g, img), .txt = join_columns(g, txt)};
}

// Streams as one: text and image of each sequence after those of the one before. -> [hidden, n]
ggml_tensor* join_streams(Graph& g, const Streams& x, int64_t n_sequences) {
    std::vector<ggml_tensor*> parts;
    for (int64_t i = 0; i < n_sequences; ++i) {
        parts.push_back(equal_part(g, x.txt, i, n_sequences));
        parts.push_back(equal_part(g, x.img, i, n_sequences));
    }
    return join_columns(g, parts);
}

// The columns of the image tokens of all sequences.
ggml_tensor* image_tokens(Graph& g, ggml_tensor* z, const AttentionLayout& layout) {
    std::vector<ggml_tensor*> parts;
    for (int64_t i = 0; i < layout.n_sequences; ++i) {
        const int64_t first = i * (z->ne[1] / layout.n_sequences) + layout.n_txt;
        parts.push_back(columns(g, z, first, layout.n_img));
    }
    return join_columns(g, parts);
}

}  // namespace

// ---- The network ----

StepInputs declare_inputs(Graph& g, const TransformerSizes& s, const TransformerShape& shape) {
    const int64_t n_img = shape.n_img + shape.n_ref;
    StepInputs in;
    in.img = g.input_f32("img", {s.channels, n_img * shape.n_pictures});
    in.txt = g.input_f32("txt", {s.text_width, shape.n_txt * shape.n_texts});
    in.time = g.input_f32("time", {kTimeChannels});
    if (shape.mode == ReferenceMode::extract) {
        in.time_zero = g.input_f32("time_zero", {kTimeChannels});
    }
    if (s.guidance) {
        in.guidance = g.input_f32("guidance", {kTimeChannels});
    }
    return in;
}

PositionInputs declare_positions(Graph& g, const TransformerShape& shape) {
    PositionInputs pos;
    for (size_t axis = 0; axis < pos.size(); ++axis) {
        pos[axis] =
            g.input_i32("pos_" + std::to_string(axis), {shape.n_txt + shape.n_img + shape.n_ref});
    }
    return pos;
}

std::vector<float> timestep_embedding(float t) {
    // Each step rounded to F32, as the reference does it.
    constexpr int64_t kHalf = kTimeChannels / 2;
    std::vector<float> e(kTimeChannels);
    const float s = 1000.0f * t;
    for (int64_t i = 0; i < kHalf; ++i) {
        const float exponent =
            -std::log(10000.0f) * static_cast<float>(i) / static_cast<float>(kHalf);
        const float angle = s * std::exp(exponent);
        e[static_cast<size_t>(i)] = std::cos(angle);
        e[static_cast<size_t>(kHalf + i)] = std::sin(angle);
    }
    return e;
}

TimeMods time_mods(Graph& g, const TransformerNetwork& n, const StepInputs& in) {
    const auto project = [&](ggml_tensor* lin, ggml_tensor* v) {
        return linear(g, lin, ggml_silu(g, v));
    };
    ggml_tensor* vec = g.tap("vec", condition(g, n, in, in.time));
    ggml_tensor* vec_zero = in.time_zero == nullptr ? nullptr : condition(g, n, in, in.time_zero);
    TimeMods mods;
    mods.img = project(n.mod_img, vec);
    mods.txt = project(n.mod_txt, vec);
    mods.single = project(n.mod_single, vec);
    mods.final = project(n.final_mod, vec);
    if (vec_zero != nullptr) {
        mods.img_zero = project(n.mod_img, vec_zero);
        mods.single_zero = project(n.mod_single, vec_zero);
    }
    return mods;
}

Flow begin_network(Graph& g, const TransformerNetwork& n, const StepInputs& in,
                   const AttentionLayout& layout, int64_t n_texts) {
    const Streams x = {.img = g.tap("img_in", linear(g, n.img_in, in.img)),
                       .txt = g.tap("txt_in", linear(g, n.txt_in, in.txt))};
    return {.x = every_sequence(g, x, layout.n_sequences / n_texts, n_texts)};
}

void run_blocks(Graph& g, const TransformerNetwork& n, Flow& flow, const TimeMods& time,
                const AttentionLayout& layout, const std::vector<CachedKv>& cache, size_t first,
                size_t end) {
    const int64_t hidden = n.img_in->ne[1];
    const StepMods mods = step_mods(g, time, hidden, layout);
    const size_t n_double = n.double_blocks.size();
    for (size_t i = first; i < end; ++i) {
        const CachedKv cached = cache.empty() ? CachedKv{} : cache[i];
        if (i < n_double) {
            Streams& x = flow.x;
            x = double_block(g, n.double_blocks[i], x, mods.img, mods.txt, layout, cached);
            g.tap("double_" + std::to_string(i) + ".0", x.txt);
            g.tap("double_" + std::to_string(i) + ".1", x.img);
            g.end_block({x.txt, x.img});
            continue;
        }
        if (flow.z == nullptr) {
            flow.z = join_streams(g, flow.x, layout.n_sequences);
        }
        ggml_tensor*& z = flow.z;
        z = single_block(g, n.single_blocks[i - n_double], z, mods.single, layout, cached);
        g.tap("single_" + std::to_string(i - n_double), z);
        g.end_block({z});
    }
}

ggml_tensor* end_network(Graph& g, const TransformerNetwork& n, const Flow& flow,
                         const TimeMods& time, const AttentionLayout& layout) {
    ggml_tensor* z = flow.z != nullptr ? flow.z : join_streams(g, flow.x, layout.n_sequences);
    return final_layer(g, n, image_tokens(g, z, layout), time.final);
}

}  // namespace flux2
