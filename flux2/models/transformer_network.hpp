// The Flux2 transformer as weights by their role and as the pieces of a graph: before, in and after
// its blocks. Follows model.py of the original authors, in its order and with its words.
// models/transformer runs it.
#pragma once

#include "compute/graph.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/weights.hpp"
#include "networks/sizes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace flux2 {

// How reference tokens take part.
enum class ReferenceMode {
    joint,    // they see and are seen by all tokens, at the current time
    extract,  // KV models, first step: they see only each other, at time 0; keys and values are
              // kept
    cached,   // KV models, later steps: only the kept keys and values remain
};

// What a graph is built for.
struct TransformerShape {
    ReferenceMode mode = ReferenceMode::joint;
    int64_t n_img = 0, n_ref = 0, n_txt = 0;
    int64_t n_pictures = 1, n_texts = 1;  // all of them in one pass

    bool operator==(const TransformerShape&) const = default;
};

// ---- Weights ----

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

struct TransformerNetwork {
    ggml_tensor *img_in, *txt_in;
    EmbedderWeights time_in, guidance_in;
    ggml_tensor *mod_img, *mod_txt, *mod_single;
    std::vector<DoubleBlockWeights> double_blocks;
    std::vector<SingleBlockWeights> single_blocks;
    ggml_tensor *final_mod, *final_linear;
};

// `of_block` gives the weights that hold a block: those of the first hold what comes before the
// blocks too and all that depends on the time, those of the last what comes after.
TransformerNetwork load_network(const std::function<Weights&(size_t)>& of_block,
                                const TransformerSizes& sizes);

// ---- Inputs ----

// What a step feeds in.
struct StepInputs {
    ggml_tensor* img = nullptr;        // [channels, (n_img + n_ref) * n_pictures]
    ggml_tensor* txt = nullptr;        // [text_width, n_txt * n_texts]
    ggml_tensor* time = nullptr;       // [256], embedded on the host
    ggml_tensor* time_zero = nullptr;  // for the references of KV models
    ggml_tensor* guidance = nullptr;   // for models with a guidance input
};

using PositionInputs = std::array<ggml_tensor*, Rope::kMaxAxes>;

// `shape` counts the references that are computed with.
StepInputs declare_inputs(Graph& g, const TransformerSizes& sizes, const TransformerShape& shape);
PositionInputs declare_positions(Graph& g, const TransformerShape& shape);

// The sinusoidal embedding of a time or guidance value: 128 cosines, then 128 sines.
std::vector<float> timestep_embedding(float t);

// ---- The graph ----

// Who attends to whom: within each of n_sequences, which are text, image, references.
struct AttentionLayout {
    ReferenceMode mode;
    int64_t n_txt, n_img, n_ref;
    int64_t n_sequences;
    Rope rope;  // of one sequence
};

// Keys and values of references in one block, kept from an earlier step.
struct CachedKv {
    ggml_tensor *k, *v;  // [head_dim, n_head, n_ref]
};

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

struct Streams {
    ggml_tensor *img, *txt;  // [hidden, n_img + n_ref], [hidden, n_txt]
};

// The tokens between two blocks: two streams up to the last double block, then one.
struct Flow {
    Streams x = {nullptr, nullptr};
    ggml_tensor* z = nullptr;

    std::array<ggml_tensor**, 3> all() { return {&x.img, &x.txt, &z}; }
};

TimeMods time_mods(Graph& g, const TransformerNetwork& n, const StepInputs& in);

// What comes before the blocks.
Flow begin_network(Graph& g, const TransformerNetwork& n, const StepInputs& in,
                   const AttentionLayout& layout, int64_t n_texts);

// Blocks [first, end), double blocks counted first. `cache` has a place per block of the network,
// or is empty when references take part like other tokens.
void run_blocks(Graph& g, const TransformerNetwork& n, Flow& flow, const TimeMods& time,
                const AttentionLayout& layout, const std::vector<CachedKv>& cache, size_t first,
                size_t end);

// What comes after them -> velocity of the image tokens [channels, n_img * n_sequences].
ggml_tensor* end_network(Graph& g, const TransformerNetwork& n, const Flow& flow,
                         const TimeMods& time, const AttentionLayout& layout);

}  // namespace flux2
