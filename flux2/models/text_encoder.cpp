#include "models/text_encoder.hpp"

#include "base/check.hpp"
#include "compute/ops/token_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace flux2 {

namespace {

struct LayerWeights {
    ggml_tensor *attn_norm, *q, *k, *v, *output;
    ggml_tensor *q_norm, *k_norm;  // null in Mistral
    ggml_tensor *ffn_norm, *gate, *up, *down;
};

}  // namespace

struct TextEncoderNetwork {
    ggml_tensor* token_embd;
    std::vector<LayerWeights> layers;
};

namespace {

LayerWeights load_layer(Weights& w, TextFamily family, const std::string& p) {
    const auto head_norm = [&](const char* name) {
        return family == TextFamily::qwen3 ? w.vector(p + name) : nullptr;
    };
    return {.attn_norm = w.vector(p + ".attn_norm.weight"),
            .q = w.matrix(p + ".attn_q.weight"),
            .k = w.matrix(p + ".attn_k.weight"),
            .v = w.matrix(p + ".attn_v.weight"),
            .output = w.matrix(p + ".attn_output.weight"),
            .q_norm = head_norm(".attn_q_norm.weight"),
            .k_norm = head_norm(".attn_k_norm.weight"),
            .ffn_norm = w.vector(p + ".ffn_norm.weight"),
            .gate = w.matrix(p + ".ffn_gate.weight"),
            .up = w.matrix(p + ".ffn_up.weight"),
            .down = w.matrix(p + ".ffn_down.weight")};
}

// What every layer needs to know beside its weights.
struct LayerContext {
    const TextEncoderSizes& sizes;
    const TextEncoderFacts& facts;
    Rope rope;
    ggml_tensor* mask;      // [n, n]
    ggml_tensor* attended;  // [1, n]: 0 where a token sees nothing, else 1; null: all see something
};

// Products stay F32: rounding them as well would double the error of 27 layers.
// x [hidden, n] -> attention branch [hidden, n]
ggml_tensor* self_attention(Graph& g, const LayerWeights& w, ggml_tensor* x,
                            const LayerContext& c) {
    const int64_t n = x->ne[1];
    const auto heads = [&](ggml_tensor* matrix, int64_t n_head, ggml_tensor* norm) {
        ggml_tensor* y = linear(g, matrix, x);
        return HeadsPart{ggml_reshape_3d(g, y, c.sizes.head_dim, n_head, n), norm};
    };
    const HeadsPart q = heads(w.q, c.sizes.n_head, w.q_norm);
    const HeadsPart k = heads(w.k, c.sizes.n_head_kv, w.k_norm);
    const HeadsPart v = heads(w.v, c.sizes.n_head_kv, nullptr);
    const AttentionInput in = {.q = join_heads(g, std::span(&q, 1), &c.rope, c.facts.eps),
                               .k = join_heads(g, std::span(&k, 1), &c.rope, c.facts.eps),
                               .v = join_heads(g, std::span(&v, 1), nullptr),
                               .mask = c.mask};
    ggml_tensor* y = linear(g, w.output, attention(g, in));
    return c.attended == nullptr ? y : ggml_mul(g, y, c.attended);
}

ggml_tensor* layer(Graph& g, const LayerWeights& w, ggml_tensor* x, const LayerContext& c) {
    const float eps = c.facts.eps;
    x = add(g, x, self_attention(g, w, rms_norm(g, x, w.attn_norm, eps), c));
    ggml_tensor* h = rms_norm(g, x, w.ffn_norm, eps);
    h = swiglu(g, linear(g, w.gate, h), linear(g, w.up, h));  // [ffn, n]
    return add(g, x, linear(g, w.down, h));
}

// Which of n tokens are no padding.
struct RealTokens {
    int64_t begin, end;
};

RealTokens real_tokens(TextFamily family, int64_t n, int64_t n_real) {
    return family == TextFamily::mistral ? RealTokens{n - n_real, n} : RealTokens{0, n_real};
}

// Row i attends to column j when j <= i and j is no padding; padding on the right attends to real
// tokens. Padding on the left has nothing to attend to: it attends to itself, since softmax must
// have something, and attended_rows makes the result 0.
std::vector<float> padding_mask(int64_t n, const RealTokens& real) {
    std::vector<float> mask(static_cast<size_t>(n * n), -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < n; ++i) {
        const auto row = mask.begin() + i * n;
        const int64_t end = std::min(i + 1, real.end);
        std::fill(row + std::min(real.begin, i), row + end, 0.0f);
    }
    return mask;
}

std::vector<float> attended_rows(int64_t n, const RealTokens& real) {
    std::vector<float> rows(static_cast<size_t>(n), 1.0f);
    std::fill(rows.begin(), rows.begin() + real.begin, 0.0f);
    return rows;
}

}  // namespace

struct TextEncoder::BuiltGraph {
    BuiltGraph(const Backend& backend, size_t max_nodes, const Form& form, bool taps)
        : graph(backend, max_nodes, form, taps), keep_taps(taps) {}

    void add_inputs(TextFamily family, int64_t n_tokens) {
        n = n_tokens;
        ids = graph.input_i32("ids", {n});
        pos = graph.input_i32("pos", {n});
        mask = graph.input_f32("mask", {n, n});
        if (family == TextFamily::mistral) {
            attended = graph.input_f32("attended", {1, n});
        }
    }

    Graph graph;
    bool keep_taps;
    int64_t n = 0;
    ggml_tensor *ids = nullptr, *pos = nullptr, *mask = nullptr;
    ggml_tensor* attended = nullptr;  // only with padding on the left
    ggml_tensor* features = nullptr;
};

TextEncoder::TextEncoder(const Backend& backend, const TextEncoderSizes& sizes,
                         const TextEncoderFacts& facts, const Checkpoint& checkpoint,
                         const WeightOptions& options)
    : backend_(backend),
      sizes_(sizes),
      facts_(facts),
      weights_(backend, checkpoint, tensor_list(sizes), options),
      network_(std::make_unique<TextEncoderNetwork>()) {
    const bool rising = std::is_sorted(facts.layers.begin(), facts.layers.end());
    check(!facts.layers.empty() && rising && facts.layers.front() >= 1 &&
              facts.layers.back() <= sizes_.n_layers,
          ErrorKind::bad_file, weights_.file(), ": has ", sizes_.n_layers,
          " layers, but its features should come from layer ",
          facts.layers.empty() ? 0 : facts.layers.back(), "; it is not made for FLUX.2");
    network_->token_embd = weights_.table("token_embd.weight");
    for (int64_t i = 0; i < facts.layers.back(); ++i) {
        weights_.begin_block();
        network_->layers.push_back(load_layer(weights_, sizes_.family, "blk." + std::to_string(i)));
    }
    form_ = choose_form(backend, weights_, sizes_.head_dim, sizes_.hidden);
    weights_.load(takes_columns(form_));
}

TextEncoder::~TextEncoder() = default;

TextEncoder::BuiltGraph& TextEncoder::graph_for(int64_t n, bool keep_taps) {
    if (built_ && built_->n == n && built_->keep_taps == keep_taps) {
        return *built_;
    }
    built_.reset();
    Form form = form_;
    form.spare_columns = weights_.spare_columns();
    auto built = std::make_unique<BuiltGraph>(backend_, 128 * (network_->layers.size() + 2), form,
                                              keep_taps);
    Graph& g = built->graph;
    g.set_low_rank(&weights_.low_rank());
    if (weights_.streams()) {
        g.set_before_block([this](size_t i) { weights_.enter_block(i); });
    }
    built->add_inputs(sizes_.family, n);
    // Checkpoints have the rows of Mistral's queries and keys as llama.cpp does.
    const bool halves = sizes_.family == TextFamily::qwen3;
    const Rope rope = rope_of_text(g, built->pos, sizes_.head_dim, facts_.rope_theta, halves);
    const LayerContext context{sizes_, facts_, rope, built->mask, built->attended};

    ggml_tensor* x = g.tap("hidden_0", ggml_get_rows(g, network_->token_embd, built->ids));
    for (size_t i = 0; i < network_->layers.size(); ++i) {
        x = g.tap("hidden_" + std::to_string(i + 1), layer(g, network_->layers[i], x, context));
        const auto number = static_cast<int64_t>(i + 1);
        if (std::find(facts_.layers.begin(), facts_.layers.end(), number) != facts_.layers.end()) {
            // Features of a token are concatenated: [hidden of the first layer, of the second].
            built->features =
                built->features == nullptr ? x : ggml_concat(g, built->features, x, 0);
        }
        g.end_block({x});
    }
    g.finish(built->features);
    built_ = std::move(built);
    return *built_;
}

HostTensor TextEncoder::encode(std::span<const int32_t> ids, int64_t n_real, Taps* taps) {
    const auto n = static_cast<int64_t>(ids.size());
    check(n > 0 && n_real > 0 && n_real <= n, ErrorKind::internal, n_real, " of ", n,
          " tokens are said to be real");
    for (const int32_t id : ids) {
        check(id >= 0 && id < sizes_.vocabulary, ErrorKind::bad_argument, "token id ", id,
              " is not in a vocabulary of ", sizes_.vocabulary,
              "; tokenizer and text encoder do not belong together");
    }
    BuiltGraph& built = graph_for(n, taps != nullptr);
    std::vector<int32_t> positions(ids.size());
    for (size_t i = 0; i < positions.size(); ++i) {
        positions[i] = static_cast<int32_t>(i);
    }
    built.graph.set(built.ids, ids);
    built.graph.set(built.pos, positions);
    const RealTokens real = real_tokens(sizes_.family, n, n_real);
    built.graph.set(built.mask, padding_mask(n, real));
    if (built.attended != nullptr) {
        built.graph.set(built.attended, attended_rows(n, real));
    }
    built.graph.compute();
    if (taps != nullptr) {
        *taps = built.graph.read_taps();
    }
    return built.graph.read(built.features);
}

Graph* TextEncoder::graph() const {
    return built_ ? &built_->graph : nullptr;
}

MemoryUse TextEncoder::compute_memory() const {
    return built_ ? built_->graph.memory() : MemoryUse{};
}

bool TextEncoder::try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) {
    if (!can_set_adapters(adapters)) {
        return false;
    }
    built_.reset();
    return weights_.try_set_adapters(adapters);
}

void TextEncoder::reserve(int64_t n) {
    graph_for(n, /*keep_taps=*/false);
}

}  // namespace flux2
