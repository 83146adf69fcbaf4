#include "models/transformer.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

namespace flux2 {

// ---- Weights ----

namespace {

struct StreamWeights {  // one of the two streams of a double block
    ggml_tensor *qkv, *q_norm, *k_norm, *proj, *mlp_in, *mlp_out;
};

struct DoubleBlockWeights {
    StreamWeights img, txt;
};

struct SingleBlockWeights {
    ggml_tensor *linear1, *linear2, *q_norm, *k_norm;
};

struct EmbedderWeights {  // of time or guidance
    ggml_tensor *in_layer = nullptr, *out_layer = nullptr;
};

}  // namespace

struct TransformerNetwork {
    ggml_tensor *img_in, *txt_in;
    EmbedderWeights time_in, guidance_in;
    ggml_tensor *mod_img, *mod_txt, *mod_single;
    std::vector<DoubleBlockWeights> double_blocks;
    std::vector<SingleBlockWeights> single_blocks;
    ggml_tensor *final_mod, *final_linear;
};

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

// `of_block` gives the weights that hold a block: those of the first hold what comes before the
// blocks too and all that depends on the time, those of the last what comes after.
template <typename OfBlock>
TransformerNetwork load_network(const OfBlock& of_block, const TransformerSizes& s) {
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

struct CachedKv {
    ggml_tensor *k, *v;  // [head_dim, n_head, n_ref]
};

// Who attends to whom: within each of n_sequences, which are text, image, references.
struct AttentionLayout {
    ReferenceMode mode;
    int64_t n_txt, n_img, n_ref;
    int64_t n_sequences;
    Rope rope;  // of one sequence
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

struct Streams {
    ggml_tensor *img, *txt;  // [hidden, n_img + n_ref], [hidden, n_txt]
};

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
    x = add_gated(g, x, linear_activations(g, w.proj, attn), mod.attn);
    ggml_tensor* h = linear_activations(g, w.mlp_in, modulate(g, x, mod.mlp));  // [2 * mlp, n]
    h = linear_activations(g, w.mlp_out, gated_half(g, h));                     // [hidden, n]
    return add_gated(g, x, h, mod.mlp);
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
    return add_gated(g, x, linear_activations(g, w.linear2, joined), mod);
}

// What depends on the time alone: shifts, scales and gates of all blocks and of the final layer.
struct TimeMods {
    ggml_tensor *img = nullptr, *txt = nullptr;               // [6 * hidden]
    ggml_tensor* single = nullptr;                            // [3 * hidden]
    ggml_tensor* final = nullptr;                             // [2 * hidden]: shift, then scale
    ggml_tensor *img_zero = nullptr, *single_zero = nullptr;  // of references of KV models

    // All of them, in the same order.
    std::array<ggml_tensor**, 6> all() {
        return {&img, &txt, &single, &final, &img_zero, &single_zero};
    }
};

TimeMods time_mods(Graph& g, const TransformerNetwork& n, ggml_tensor* vec, ggml_tensor* vec_zero) {
    const auto project = [&](ggml_tensor* lin, ggml_tensor* v) {
        return linear(g, lin, ggml_silu(g, v));
    };
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

// What a step feeds in.
struct Inputs {
    ggml_tensor* img = nullptr;        // [channels, (n_img + n_ref) * n_pictures]
    ggml_tensor* txt = nullptr;        // [text_width, n_txt * n_texts]
    ggml_tensor* time = nullptr;       // [256], embedded on the host
    ggml_tensor* time_zero = nullptr;  // for the references of KV models
    ggml_tensor* guidance = nullptr;   // for models with a guidance input
};

using PositionInputs = std::array<ggml_tensor*, Rope::kMaxAxes>;

// `shape` counts the references that are computed with.
Inputs declare_inputs(Graph& g, const TransformerSizes& s, const TransformerShape& shape) {
    const int64_t n_img = shape.n_img + shape.n_ref;
    Inputs in;
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

// The conditioning vector of a time, with the guidance where the model takes it. -> [hidden]
ggml_tensor* condition(Graph& g, const TransformerNetwork& n, const Inputs& in, ggml_tensor* time) {
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

// The tokens between two blocks: two streams up to the last double block, then one.
struct Flow {
    Streams x = {nullptr, nullptr};
    ggml_tensor* z = nullptr;

    std::array<ggml_tensor**, 3> all() { return {&x.img, &x.txt, &z}; }
};

// What comes before the blocks.
Flow begin(Graph& g, const TransformerNetwork& n, const Inputs& in, const AttentionLayout& layout,
           int64_t n_texts) {
    const Streams x = {.img = g.tap("img_in", linear(g, n.img_in, in.img)),
                       .txt = g.tap("txt_in", linear(g, n.txt_in, in.txt))};
    return {.x = every_sequence(g, x, layout.n_sequences / n_texts, n_texts)};
}

// Blocks [first, end). `cache` has a place per block of the network, or is empty when references
// take part like other tokens.
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

// What comes after them -> velocity of the image tokens [channels, n_img * n_sequences].
ggml_tensor* end_network(Graph& g, const TransformerNetwork& n, const Flow& flow,
                         const TimeMods& time, const AttentionLayout& layout) {
    ggml_tensor* z = flow.z != nullptr ? flow.z : join_streams(g, flow.x, layout.n_sequences);
    return final_layer(g, n, image_tokens(g, z, layout), time.final);
}

// The tokens of each picture, then those of the references.
std::vector<float> with_references(const TransformerInput& input) {
    const std::vector<float>& img = input.img.data;
    const auto n = static_cast<std::ptrdiff_t>(input.img.ne[0] * input.img.ne[1]);
    std::vector<float> all;
    all.reserve(img.size() + static_cast<size_t>(input.img.ne[2]) * input.ref.data.size());
    for (auto picture = img.begin(); picture != img.end(); picture += n) {
        all.insert(all.end(), picture, picture + n);
        all.insert(all.end(), input.ref.data.begin(), input.ref.data.end());
    }
    return all;
}

// Sends values only where they differ from those that were sent last.
template <typename Values>
void send_new(Values& sent, const Values& values, const std::function<void()>& send) {
    if (sent != values) {
        send();
        sent = values;
    }
}

}  // namespace

struct Transformer::Section {
    Section(const Backend& used, size_t first_block, size_t end_block, const Checkpoint& checkpoint,
            const std::vector<ExpectedTensor>& tensors, const WeightOptions& options)
        : backend(used),
          first(first_block),
          end(end_block),
          weights(backend, checkpoint, tensors, options) {}

    const Backend& backend;
    size_t first, end;  // blocks
    Weights weights;
    Form form;
};

// Keys and values of reference tokens, per block, double blocks first.
struct Transformer::KvCache {
    int64_t n_ref = 0;
    ggml_context_ptr context;
    std::vector<CachedKv> blocks;
    std::vector<TensorBuffer> buffers;  // one per section
};

struct Transformer::BuiltGraph {
    // An input of a section, and what an earlier one has for it.
    struct Copy {
        ggml_tensor* to;
        size_t section;  // the earlier one
        ggml_tensor* from;
        bool is_flow;  // tokens between blocks
    };
    struct Part {
        Part(const Backend& backend, size_t max_nodes, const Form& form, bool taps)
            : graph(backend, max_nodes, form, taps) {}

        Graph graph;
        PositionInputs pos = {};
        std::vector<Copy> copies;  // before it is computed
    };

    TransformerShape shape;
    bool keep_taps = false;
    std::vector<std::unique_ptr<Part>> parts;  // one per section
    Inputs in;                                 // of the first
    // What inputs hold.
    SharedTensor txt, negative_txt;
    std::vector<Position> positions;
    std::vector<float> guidance, time_zero;
    ggml_tensor* velocity = nullptr;  // of the last
};

std::vector<size_t> share_blocks(const TransformerSizes& sizes, const std::vector<double>& shares) {
    const auto n_double = static_cast<size_t>(sizes.n_double);
    const size_t n_blocks = n_double + static_cast<size_t>(sizes.n_single);
    check(shares.size() <= n_blocks, ErrorKind::bad_argument, shares.size(),
          " devices cannot share the ", n_blocks, " blocks of this transformer; use fewer");
    std::vector<double> weights(n_blocks);
    for (const ExpectedTensor& tensor : tensor_list(sizes)) {
        for (const bool is_double : {true, false}) {
            const std::string prefix = is_double ? "double_blocks." : "single_blocks.";
            if (tensor.name.starts_with(prefix)) {
                const size_t i = std::stoul(tensor.name.substr(prefix.size()));
                weights[i + (is_double ? 0 : n_double)] +=
                    static_cast<double>(tensor.shape.elements());
            }
        }
    }
    const double of_all = std::accumulate(weights.begin(), weights.end(), 0.0) /
                          std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<size_t> counts;
    size_t block = 0;
    double taken = 0;
    double wanted = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
        wanted += shares[i] * of_all;
        const size_t left_to_others = shares.size() - 1 - i;
        size_t count = 0;
        while (block + left_to_others < n_blocks &&
               (count == 0 || left_to_others == 0 || taken + weights[block] / 2 <= wanted)) {
            taken += weights[block++];
            ++count;
        }
        counts.push_back(count);
    }
    return counts;
}

Transformer::Transformer(const Backend& backend, const TransformerSizes& sizes,
                         const Checkpoint& checkpoint, const WeightOptions& options)
    : Transformer(std::vector<BlockShare>{{&backend, 1}}, sizes, checkpoint, options) {}

Transformer::Transformer(const std::vector<BlockShare>& shares, const TransformerSizes& sizes,
                         const Checkpoint& checkpoint, const WeightOptions& options)
    : sizes_(sizes), network_(std::make_unique<TransformerNetwork>()) {
    const TransformerSizes& s = sizes_;
    std::vector<double> numbers;
    for (const BlockShare& share : shares) {
        numbers.push_back(share.share);
    }
    const std::vector<size_t> counts = share_blocks(s, numbers);
    const std::vector<ExpectedTensor> tensors = tensor_list(s);
    size_t first = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
        sections_.push_back(std::make_unique<Section>(*shares[i].backend, first, first + counts[i],
                                                      checkpoint, tensors, options));
        first += counts[i];
    }
    check(s.head_dim % (2 * Rope::kMaxAxes) == 0, ErrorKind::bad_file,
          sections_.front()->weights.file(), ": head size ", s.head_dim,
          " cannot be shared by four position axes");
    *network_ = load_network(
        [&](size_t block) -> Weights& {
            for (const auto& section : sections_) {
                if (block < section->end) {
                    return section->weights;
                }
            }
            return sections_.back()->weights;
        },
        s);
    for (const auto& section : sections_) {
        section->form = choose_form(section->backend, section->weights, s.head_dim, s.hidden);
        section->weights.load(takes_columns(section->form));
        section->form.spare_columns = section->weights.spare_columns();
    }
}

Transformer::~Transformer() = default;

Transformer::BuiltGraph& Transformer::graph_for(const TransformerShape& shape, bool keep_taps) {
    if (built_ && built_->shape == shape && built_->keep_taps == keep_taps) {
        return *built_;
    }
    if (shape.mode == ReferenceMode::extract) {
        prepare_cache(shape.n_ref);
    }
    check(shape.mode != ReferenceMode::cached || (cache_ && cache_->n_ref == shape.n_ref),
          ErrorKind::internal, "no keys and values of these references are kept");
    built_.reset();  // gives its memory back first
    const int64_t n_sequences = shape.n_pictures * shape.n_texts;
    const size_t nodes_of_block = 192 + 64 * static_cast<size_t>(n_sequences);
    const std::vector<CachedKv> cache =
        shape.mode == ReferenceMode::joint ? std::vector<CachedKv>() : cache_->blocks;
    TransformerShape own = shape;
    own.n_ref = shape.mode == ReferenceMode::cached ? 0 : shape.n_ref;
    auto built = std::make_unique<BuiltGraph>();
    built->shape = shape;
    built->keep_taps = keep_taps;
    Flow flow;
    TimeMods time;
    TimeMods kept_time;  // of the first section, for the others
    for (size_t i = 0; i < sections_.size(); ++i) {
        Section& section = *sections_[i];
        built->parts.push_back(std::make_unique<BuiltGraph::Part>(
            section.backend, nodes_of_block * (section.end - section.first + 4), section.form,
            keep_taps));
        BuiltGraph::Part& part = *built->parts.back();
        Graph& g = part.graph;
        g.set_low_rank(&section.weights.low_rank());
        g.set_progress(sections_.front()->backend, section.first, n_blocks());
        if (section.weights.streams()) {
            g.set_before_block([&section](size_t block) { section.weights.enter_block(block); });
        }
        if (i == 0) {
            built->in = declare_inputs(g, sizes_, own);
        }
        part.pos = declare_positions(g, own);
        const AttentionLayout layout{
            shape.mode,
            shape.n_txt,
            shape.n_img,
            own.n_ref,
            n_sequences,
            rope_of_axes(g, part.pos, sizes_.head_dim, static_cast<float>(sizes_.rope_theta))};
        const bool is_last = i + 1 == sections_.size();
        if (i == 0) {
            const Inputs& in = built->in;
            ggml_tensor* vec = g.tap("vec", condition(g, *network_, in, in.time));
            ggml_tensor* vec_zero =
                in.time_zero == nullptr ? nullptr : condition(g, *network_, in, in.time_zero);
            time = time_mods(g, *network_, vec, vec_zero);
            flow = begin(g, *network_, in, layout, shape.n_texts);
        } else {
            // Inputs in place of what other sections have computed.
            const auto from = [&](ggml_tensor* result, size_t source, bool is_flow,
                                  const std::string& name) -> ggml_tensor* {
                if (result == nullptr) {
                    return nullptr;
                }
                ggml_tensor* input = g.input_f32(name, {result->ne[0], result->ne[1]});
                part.copies.push_back({input, source, result, is_flow});
                return input;
            };
            const auto n_double = static_cast<size_t>(sizes_.n_double);
            const bool has_double = section.first < n_double;
            const bool has_single = section.end > n_double;
            time.img = from(has_double ? kept_time.img : nullptr, 0, false, "mod_img");
            time.txt = from(has_double ? kept_time.txt : nullptr, 0, false, "mod_txt");
            time.single = from(has_single ? kept_time.single : nullptr, 0, false, "mod_single");
            time.final = from(is_last ? kept_time.final : nullptr, 0, false, "mod_final");
            time.img_zero =
                from(has_double ? kept_time.img_zero : nullptr, 0, false, "mod_img_zero");
            time.single_zero =
                from(has_single ? kept_time.single_zero : nullptr, 0, false, "mod_single_zero");
            for (ggml_tensor** tokens : flow.all()) {
                *tokens = from(*tokens, i - 1, true, "tokens");
            }
        }
        run_blocks(g, *network_, flow, time, layout, cache, section.first, section.end);
        if (is_last) {
            built->velocity = end_network(g, *network_, flow, time, layout);
            g.finish(built->velocity);
            continue;
        }
        if (flow.z != nullptr) {
            flow.x = {nullptr, nullptr};
        }
        if (i == 0) {
            kept_time = time;
            for (ggml_tensor** mod : kept_time.all()) {
                *mod = *mod == nullptr ? nullptr : g.keep(*mod);
            }
        }
        ggml_tensor* last = nullptr;
        for (ggml_tensor** tokens : flow.all()) {
            if (*tokens != nullptr) {
                last = *tokens = g.keep(*tokens);
            }
        }
        g.finish(last);
    }
    built_ = std::move(built);
    return *built_;
}

// Uploads what has changed since the last step.
void Transformer::feed(BuiltGraph& built, const TransformerInput& input) {
    Graph& g = built.parts.front()->graph;
    std::vector<Position> positions = input.txt_pos;
    positions.insert(positions.end(), input.img_pos.begin(), input.img_pos.end());
    if (built.shape.mode == ReferenceMode::cached) {
        g.set(built.in.img, input.img.data);
    } else {
        g.set(built.in.img, with_references(input));
        positions.insert(positions.end(), input.ref_pos.begin(), input.ref_pos.end());
    }
    g.set(built.in.time, timestep_embedding(input.timestep));
    if (built.in.time_zero != nullptr) {
        const auto zero = timestep_embedding(0.0f);
        send_new(built.time_zero, zero, [&] { g.set(built.in.time_zero, zero); });
    }
    if (built.in.guidance != nullptr) {
        const auto guidance = timestep_embedding(input.guidance);
        send_new(built.guidance, guidance, [&] { g.set(built.in.guidance, guidance); });
    }
    send_new(built.positions, positions, [&] {
        for (const auto& part : built.parts) {
            for (size_t axis = 0; axis < part->pos.size(); ++axis) {
                std::vector<int32_t> ids;
                for (const Position& position : positions) {
                    ids.push_back(position[axis]);
                }
                part->graph.set(part->pos[axis], ids);
            }
        }
    });
    if (built.txt != input.txt || built.negative_txt != input.negative_txt) {
        std::vector<float> txt = input.txt->data;
        if (input.negative_txt) {
            txt.insert(txt.end(), input.negative_txt->data.begin(), input.negative_txt->data.end());
        }
        g.set(built.in.txt, txt);
        built.txt = input.txt;
        built.negative_txt = input.negative_txt;
    }
}

HostTensor Transformer::predict(const TransformerInput& input, ReferenceMode mode, Taps* taps) {
    const TransformerSizes& s = sizes_;
    const int64_t n_ref = input.ref.data.empty() ? 0 : input.ref.ne[1];
    check(input.img.ne[0] == s.channels && (n_ref == 0 || input.ref.ne[0] == s.channels) &&
              input.txt->ne[0] == s.text_width,
          ErrorKind::bad_argument, "the transformer takes ", s.channels,
          " latent channels and text features ", s.text_width, " wide, not ", input.img.ne[0],
          " and ", input.txt->ne[0], "; use the text encoder and autoencoder made for it");
    const TransformerShape shape = {.mode = mode,
                                    .n_img = input.img.ne[1],
                                    .n_ref = n_ref,
                                    .n_txt = input.txt->ne[1],
                                    .n_pictures = input.img.ne[2],
                                    .n_texts = input.negative_txt ? 2 : 1};
    check(mode != ReferenceMode::extract || (shape.n_pictures == 1 && shape.n_texts == 1),
          ErrorKind::internal, "what is kept of references is computed with one picture");
    BuiltGraph& built = graph_for(shape, taps != nullptr);
    feed(built, input);
    for (const auto& part : built.parts) {
        for (const BuiltGraph::Copy& copy : part->copies) {
            part->graph.set_from(copy.to, built.parts[copy.section]->graph, copy.from);
        }
        part->graph.compute();
        if (taps != nullptr) {
            taps->merge(part->graph.read_taps());
        }
    }
    HostTensor velocity = built.parts.back()->graph.read(built.velocity);
    velocity.ne = {s.channels, shape.n_img, shape.n_pictures * shape.n_texts, 1};
    return velocity;
}

// Makes room for the keys and values of n_ref reference tokens.
void Transformer::prepare_cache(int64_t n_ref) {
    if (cache_ && cache_->n_ref == n_ref) {
        return;
    }
    built_.reset();  // it may point into the old cache
    const TransformerSizes& s = sizes_;
    const auto n_blocks = static_cast<size_t>(s.n_double + s.n_single);
    cache_ = std::make_unique<KvCache>();
    cache_->n_ref = n_ref;
    cache_->context.reset(ggml_init({.mem_size = (2 * n_blocks + 1) * ggml_tensor_overhead(),
                                     .mem_buffer = nullptr,
                                     .no_alloc = true}));
    for (const auto& section : sections_) {
        std::vector<ggml_tensor*> tensors;
        const auto place = [&] {
            tensors.push_back(ggml_new_tensor_3d(cache_->context.get(), kept_type(section->form),
                                                 s.head_dim, s.hidden / s.head_dim, n_ref));
            return tensors.back();
        };
        for (size_t i = section->first; i < section->end; ++i) {
            ggml_tensor* k = place();
            cache_->blocks.push_back({k, place()});
        }
        cache_->buffers.push_back(
            section->backend.allocate(tensors, section->backend.memory_for(tensors.front()),
                                      concat("what is kept of ", n_ref, " reference tokens")));
    }
}

bool Transformer::try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) {
    built_.reset();
    bool done = true;
    for (const auto& section : sections_) {
        done = section->weights.try_set_adapters(adapters) && done;
        section->form.spare_columns = section->weights.spare_columns();
    }
    return done;
}

void Transformer::reserve(const TransformerShape& shape) {
    graph_for(shape, /*keep_taps=*/false);
}

Graph* Transformer::graph() const {
    return built_ ? &built_->parts.front()->graph : nullptr;
}

std::vector<Graph*> Transformer::graphs() const {
    std::vector<Graph*> graphs;
    for (size_t i = 0; built_ && i < built_->parts.size(); ++i) {
        graphs.push_back(&built_->parts[i]->graph);
    }
    return graphs;
}

std::vector<BlockRange> Transformer::block_ranges() const {
    std::vector<BlockRange> ranges;
    for (size_t i = 0; i < sections_.size(); ++i) {
        const Section& section = *sections_[i];
        BlockRange range = {
            &section.backend, section.first, section.end, section.weights.memory().own, {}};
        if (built_) {
            range.compute += built_->parts[i]->graph.memory();
        }
        const uint64_t kept = cache_ ? cache_->buffers[i].bytes : 0;
        range.compute += section.backend.is_cpu() ? MemoryUse{0, kept} : MemoryUse{kept, 0};
        ranges.push_back(range);
    }
    return ranges;
}

std::vector<Crossing> Transformer::crossings() const {
    std::vector<Crossing> crossings;
    const auto add = [&](const Backend* from, const Backend* to, const ggml_tensor* tensor,
                         bool is_flow) {
        const auto found = std::find_if(crossings.begin(), crossings.end(), [&](const Crossing& c) {
            return c.from == from && c.to == to;
        });
        Crossing& crossing =
            found != crossings.end() ? *found : crossings.emplace_back(Crossing{from, to});
        (is_flow ? crossing.activations : crossing.others) += ggml_nbytes(tensor);
    };
    if (!built_) {
        return crossings;
    }
    add(nullptr, &sections_.front()->backend, built_->in.img, true);
    add(nullptr, &sections_.front()->backend, built_->in.time, false);
    for (size_t i = 0; i < sections_.size(); ++i) {
        for (const BuiltGraph::Copy& copy : built_->parts[i]->copies) {
            add(&sections_[copy.section]->backend, &sections_[i]->backend, copy.to, copy.is_flow);
        }
    }
    add(&sections_.back()->backend, nullptr, built_->velocity, true);
    return crossings;
}

MemoryUse Transformer::compute_memory() const {
    MemoryUse use;
    for (const BlockRange& range : block_ranges()) {
        use += range.compute;
    }
    return use;
}

WeightMemory Transformer::weight_memory() const {
    WeightMemory memory;
    for (const auto& section : sections_) {
        memory.own += section->weights.memory().own;
        memory.mapped += section->weights.memory().mapped;
        memory.loading = std::max(memory.loading, section->weights.memory().loading);
    }
    return memory;
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

}  // namespace flux2
