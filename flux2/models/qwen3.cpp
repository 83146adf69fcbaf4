#include "models/qwen3.hpp"

#include "base/check.hpp"
#include "compute/ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace flux2 {

namespace {

struct LayerWeights {
    ggml_tensor *attn_norm, *q, *k, *v, *q_norm, *k_norm, *output;
    ggml_tensor *ffn_norm, *gate, *up, *down;
};

}  // namespace

struct Qwen3Network {
    ggml_tensor* token_embd;
    std::vector<LayerWeights> layers;
};

namespace {

LayerWeights load_layer(Weights& w, const Qwen3Sizes& s, const std::string& p) {
    const int64_t q = s.n_head * s.head_dim;
    const int64_t kv = s.n_head_kv * s.head_dim;
    return {.attn_norm = w.vector(p + ".attn_norm.weight", s.hidden),
            .q = w.matrix(p + ".attn_q.weight", {s.hidden, q}),
            .k = w.matrix(p + ".attn_k.weight", {s.hidden, kv}),
            .v = w.matrix(p + ".attn_v.weight", {s.hidden, kv}),
            .q_norm = w.vector(p + ".attn_q_norm.weight", s.head_dim),
            .k_norm = w.vector(p + ".attn_k_norm.weight", s.head_dim),
            .output = w.matrix(p + ".attn_output.weight", {q, s.hidden}),
            .ffn_norm = w.vector(p + ".ffn_norm.weight", s.hidden),
            .gate = w.matrix(p + ".ffn_gate.weight", {s.hidden, s.ffn}),
            .up = w.matrix(p + ".ffn_up.weight", {s.hidden, s.ffn}),
            .down = w.matrix(p + ".ffn_down.weight", {s.ffn, s.hidden})};
}

// What every layer needs to know beside its weights.
struct LayerContext {
    const Qwen3Sizes& sizes;
    const Qwen3Facts& facts;
    Rope rope;
    ggml_tensor* mask;  // [n, n]
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
    return linear(g, w.output, attention(g, in));
}

ggml_tensor* layer(Graph& g, const LayerWeights& w, ggml_tensor* x, const LayerContext& c) {
    const float eps = c.facts.eps;
    x = add(g, x, self_attention(g, w, rms_norm(g, x, w.attn_norm, eps), c));
    ggml_tensor* h = rms_norm(g, x, w.ffn_norm, eps);
    h = swiglu(g, linear(g, w.gate, h), linear(g, w.up, h));  // [ffn, n]
    return add(g, x, linear(g, w.down, h));
}

// Row i may look at column j when j <= i and j is no padding; padding rows look at real tokens.
std::vector<float> padding_mask(int64_t n, int64_t n_real) {
    std::vector<float> mask(static_cast<size_t>(n * n), -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < n; ++i) {
        const auto row = mask.begin() + i * n;
        std::fill(row, row + std::min(i + 1, n_real), 0.0f);
    }
    return mask;
}

}  // namespace

struct Qwen3::Plan {
    Plan(const Backend& backend, size_t max_nodes, const Form& form, bool taps)
        : graph(backend, max_nodes, form, taps), keep_taps(taps) {}

    Graph graph;
    bool keep_taps;
    int64_t n = 0;
    ggml_tensor *ids = nullptr, *pos = nullptr, *mask = nullptr;
    ggml_tensor* features = nullptr;
};

Qwen3::Qwen3(const Backend& backend, const Checkpoint& checkpoint, const Qwen3Facts& facts,
             const WeightOptions& options)
    : backend_(backend),
      sizes_(read_qwen3_sizes(checkpoint)),
      facts_(facts),
      weights_(backend, checkpoint, options),
      network_(std::make_unique<Qwen3Network>()) {
    const bool rising = std::is_sorted(facts.layers.begin(), facts.layers.end());
    check(!facts.layers.empty() && rising && facts.layers.front() >= 1 &&
              facts.layers.back() <= sizes_.n_layers,
          ErrorKind::bad_file, checkpoint.file(), ": has ", sizes_.n_layers,
          " layers, but its features should come from layer ",
          facts.layers.empty() ? 0 : facts.layers.back(), "; it is not made for FLUX.2");
    network_->token_embd = weights_.table("token_embd.weight", {sizes_.hidden, sizes_.vocabulary});
    for (int64_t i = 0; i < facts.layers.back(); ++i) {
        weights_.begin_block();
        network_->layers.push_back(load_layer(weights_, sizes_, "blk." + std::to_string(i)));
    }
    form_ = choose_form(backend, weights_, sizes_.head_dim, sizes_.hidden);
    weights_.load();
}

Qwen3::~Qwen3() = default;

Qwen3::Plan& Qwen3::plan_for(int64_t n, bool keep_taps) {
    if (plan_ && plan_->n == n && plan_->keep_taps == keep_taps) {
        return *plan_;
    }
    plan_.reset();
    auto plan =
        std::make_unique<Plan>(backend_, 64 * (network_->layers.size() + 2), form_, keep_taps);
    plan->n = n;
    Graph& g = plan->graph;
    if (weights_.streams()) {
        g.set_before_block([this](size_t i) { weights_.enter_block(i); });
    }
    plan->ids = g.input_i32("ids", {n});
    plan->pos = g.input_i32("pos", {n});
    plan->mask = g.input_f32("mask", {n, n});
    const Rope rope = rope_of_text(g, plan->pos, sizes_.head_dim, facts_.rope_theta);
    const LayerContext context{sizes_, facts_, rope, plan->mask};

    ggml_tensor* x = g.tap("hidden_0", ggml_get_rows(g, network_->token_embd, plan->ids));
    for (size_t i = 0; i < network_->layers.size(); ++i) {
        x = g.tap("hidden_" + std::to_string(i + 1), layer(g, network_->layers[i], x, context));
        const auto number = static_cast<int64_t>(i + 1);
        if (std::find(facts_.layers.begin(), facts_.layers.end(), number) != facts_.layers.end()) {
            // Features of a token lie side by side: [hidden of the first layer, of the second,
            // ...].
            plan->features = plan->features == nullptr ? x : ggml_concat(g, plan->features, x, 0);
        }
        g.end_block({x});
    }
    g.finish(plan->features);
    plan_ = std::move(plan);
    return *plan_;
}

HostTensor Qwen3::encode(std::span<const int32_t> ids, int64_t n_real, Taps* taps) {
    const auto n = static_cast<int64_t>(ids.size());
    check(n > 0 && n_real > 0 && n_real <= n, ErrorKind::internal, n_real, " of ", n,
          " tokens are said to be real");
    for (const int32_t id : ids) {
        check(id >= 0 && id < sizes_.vocabulary, ErrorKind::bad_argument, "token id ", id,
              " is not in a vocabulary of ", sizes_.vocabulary,
              "; tokenizer and text encoder do not belong together");
    }
    Plan& plan = plan_for(n, taps != nullptr);
    std::vector<int32_t> positions(ids.size());
    for (size_t i = 0; i < positions.size(); ++i) {
        positions[i] = static_cast<int32_t>(i);
    }
    plan.graph.set(plan.ids, ids);
    plan.graph.set(plan.pos, positions);
    plan.graph.set(plan.mask, padding_mask(n, n_real));
    plan.graph.compute();
    if (taps != nullptr) {
        *taps = plan.graph.read_taps();
    }
    return plan.graph.read(plan.features);
}

const Graph* Qwen3::graph() const {
    return plan_ ? &plan_->graph : nullptr;
}

MemoryUse Qwen3::compute_memory() const {
    return plan_ ? plan_->graph.memory() : MemoryUse{};
}

void Qwen3::reserve(int64_t n) {
    plan_for(n, /*keep_taps=*/false);
}

}  // namespace flux2
