// The blocks of the transformer: forwards with all that their backward passes need, and backwards,
// written out by hand. The gradients of the single operations are in compute/ops/gradient_ops.
// Shapes are ggml order, fastest first; d is the gradient of a result.
#pragma once

#include "compute/graph.hpp"
#include "compute/operands.hpp"
#include "compute/ops/gradient_ops.hpp"
#include "models/transformer_network.hpp"

#include <ggml.h>

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

namespace flux2 {

// A matrix that is trained, in a graph.
struct TrainedFactor {
    ggml_tensor* values = nullptr;    // input [in, out]
    ggml_tensor* matrix = nullptr;    // the same as products take it; null: there is none
    ggml_tensor* gradient = nullptr;  // result [in, out], of B [out, in]
};

// What is trained beside a matrix: a pair of low rank, or a LoKr's factors (trained_adapter).
struct TrainedPair {
    TrainedFactor a, b, w1;
    // Input [rank, n] with what each value between A and B is multiplied with; null without
    // dropout.
    ggml_tensor* dropout = nullptr;
};
// By the matrix that they belong to.
using TrainedPairs = std::unordered_map<const ggml_tensor*, TrainedPair>;

// What all blocks share.
struct PassContext {
    Graph& g;
    TrainedPairs& pairs;
    Rope rope = {};
    bool drops = false;  // values between A and B
    // Tokens before references that see only each other, as those of KV models do; 0: all see all.
    int64_t n_main = 0;
};

// y = W x + B (A x); with dropout A x is multiplied with its factors. Of a LoKr the pair is applied
// to each part of W1's product: for token x as a matrix of parts [i2, i1], B A x W1^T [o2, o1].
class LinearPass {
  public:
    LinearPass() = default;
    // `to`: the type of the result on NVIDIA GPUs
    LinearPass(const PassContext& context, ggml_tensor* w, ggml_tensor* x, ggml_type to);

    ggml_tensor* result() const { return y_; }  // [out, n]
    // Keeps the gradients of the pair; returns that of x.
    ggml_tensor* back(const PassContext& context, ggml_tensor* d) const;
    // The gradients of the pair alone.
    void back_to_pair(const PassContext& context, ggml_tensor* d) const;

  private:
    void add_kronecker(const PassContext& context, const TrainedPair& pair);
    ggml_tensor* keep_pair_gradients(const PassContext& context, ggml_tensor* d) const;
    ggml_tensor* kronecker_gradients(const PassContext& context, TrainedPair& pair, ggml_tensor* d,
                                     bool wants_x) const;

    ggml_tensor *w_ = nullptr, *x_ = nullptr;
    ggml_tensor* inner_ = nullptr;  // A x [rank, n], what is left of it; null without a pair
    // Of a LoKr.
    ggml_tensor* exchanged_ = nullptr;  // x [i1, i2 * n]
    ggml_tensor* mixed_ = nullptr;      // W1's product with it [i2, o1 * n]
    ggml_tensor* y_ = nullptr;
};

struct StreamMods {  // of one stream of a double block
    ModSpans attn, mlp;
};

// Attention of all tokens, and of references among themselves where they see only each other.
class AttentionPass {
  public:
    // Of the projections of one or two parts.
    AttentionPass(const PassContext& context, std::span<const ProjectedHeads> parts,
                  int64_t hidden);

    ggml_tensor* result() const { return result_; }  // [hidden, n]
    AttentionGradient back(const PassContext& context, ggml_tensor* d) const;

  private:
    KeptAttention all_, references_ = {};
    ggml_tensor* result_;
};

// One stream of a double block.
class StreamPass {
  public:
    StreamPass(const PassContext& context, const StreamWeights& weights, ggml_tensor* x,
               const StreamMods& mods);

    ggml_tensor* projection() const { return qkv_.result(); }
    // Goes on with what attention gave for its tokens.
    void finish(const PassContext& context, ggml_tensor* attn);
    ggml_tensor* result() const { return y_; }

    // Back to what attention gave, which is returned.
    ggml_tensor* back_to_attention(const PassContext& context, ggml_tensor* d);
    // From the gradient of the projection to that of x; null, and only pairs', unless wanted.
    ggml_tensor* back(const PassContext& context, ggml_tensor* d_projection, bool wants_x) const;

  private:
    StreamMods mods_;
    const StreamWeights* weights_;
    ggml_tensor* x_;
    LinearPass qkv_, proj_, mlp_in_, mlp_out_;
    ggml_tensor* middle_ = nullptr;    // between attention and MLP
    ggml_tensor* d_middle_ = nullptr;  // its gradient
    ggml_tensor* y_ = nullptr;
};

class DoublePass {
  public:
    DoublePass(const PassContext& context, const DoubleBlockWeights& weights, const Streams& x,
               const StreamMods& img_mods, const StreamMods& txt_mods);

    Streams result() const { return {img_.result(), txt_.result()}; }
    // The gradients of x, or nulls when they are not wanted.
    Streams back(const PassContext& context, const Streams& d, bool wants_x);

  private:
    const DoubleBlockWeights* weights_;
    StreamPass img_, txt_;
    std::optional<AttentionPass> attention_;
};

class SinglePass {
  public:
    SinglePass(const PassContext& context, const SingleBlockWeights& weights, ggml_tensor* x,
               const ModSpans& mod);

    ggml_tensor* result() const { return y_; }
    ggml_tensor* back(const PassContext& context, ggml_tensor* d, bool wants_x) const;

  private:
    const SingleBlockWeights* weights_;
    ModSpans mod_;
    ggml_tensor* x_;
    LinearPass linear1_, linear2_;
    std::optional<AttentionPass> attention_;
    ggml_tensor* y_ = nullptr;
};

// The final layer, without its modulation's projection. z [hidden, n] -> [channels, n]
class FinalPass {
  public:
    FinalPass(const PassContext& context, ggml_tensor* linear, ggml_tensor* z, const Mod& mod);

    ggml_tensor* result() const { return linear_.result(); }
    ggml_tensor* back(const PassContext& context, ggml_tensor* d) const;

  private:
    Mod mod_;
    ggml_tensor* z_;
    LinearPass linear_;
};

}  // namespace flux2
