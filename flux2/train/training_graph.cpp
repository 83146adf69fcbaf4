#include "train/training_graph.hpp"

#include "compute/ops/token_ops.hpp"
#include "models/transformer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace flux2 {
namespace {

// What depends on the time alone.
struct PassMods {
    StreamMods img, txt;
    ModSpans single;
    Mod final;
};

// Builds it.
class Builder {
  public:
    Builder(TrainingGraph& built, const FrozenNetwork& network, const TransformerSizes& sizes,
            ReferenceMode references)
        : built_(built),
          g_(built.graph),
          network_(network),
          parts_(network.parts()),
          sizes_(sizes),
          references_(references) {}

    void declare_inputs(const TrainedAdapter& adapter, const PairTransfer& transfer) {
        const ExampleShape& shape = built_.shape;
        built_.img = g_.input_f32("img", {sizes_.channels, shape.n_img + shape.n_ref});
        built_.txt = g_.input_f32("txt", {sizes_.text_width, shape.n_txt});
        built_.time = g_.input_f32("time", {kTimeChannels});
        if (has_kv_references()) {
            built_.time_zero = g_.input_f32("time_zero", {kTimeChannels});
        }
        if (sizes_.guidance) {
            built_.guidance = g_.input_f32("guidance", {kTimeChannels});
        }
        for (size_t axis = 0; axis < built_.pos.size(); ++axis) {
            built_.pos[axis] = g_.input_i32("pos_" + std::to_string(axis),
                                            {shape.n_txt + shape.n_img + shape.n_ref});
        }
        built_.target = g_.input_f32("target", {sizes_.channels, shape.n_img});
        for (size_t i = 0; i < adapter.modules().size(); ++i) {
            TrainedPair& pair = built_.pairs[network_.matrix(adapter.modules()[i].name)];
            built_.in_order.push_back(&pair);
            transfer.declare(g_, i, pair);
        }
    }

    void build(bool wants_gradients, bool drops) {
        PassContext context = {
            g_, built_.pairs,
            rope_of_axes(g_, built_.pos, sizes_.head_dim, static_cast<float>(sizes_.rope_theta)),
            drops, has_kv_references() ? built_.shape.n_txt + built_.shape.n_img : 0};
        const PassMods mods = time_mods();
        const LinearPass img_in(context, parts_.img_in, built_.img, GGML_TYPE_F32);
        const LinearPass txt_in(context, parts_.txt_in, built_.txt, GGML_TYPE_F32);
        const Streams x0 = {img_in.result(), txt_in.result()};
        g_.expand(x0.txt);
        forward(context, x0, mods);
        const FinalPass final(context, parts_.final_linear,
                              columns(g_, z_, built_.shape.n_txt, built_.shape.n_img), mods.final);
        built_.velocity = g_.keep(final.result());
        built_.difference = ggml_sub(g_, built_.velocity, built_.target);
        if (!wants_gradients) {
            return g_.finish(built_.difference);
        }
        built_.difference = g_.keep(built_.difference);
        const bool trains_inputs =
            built_.pairs.contains(parts_.img_in) || built_.pairs.contains(parts_.txt_in);
        const Streams d0 = backward(context, final, mods, trains_inputs);
        if (trains_inputs) {
            img_in.back_to_pair(context, d0.img);
            txt_in.back_to_pair(context, d0.txt);
        }
        g_.finish(built_.difference);
    }

  private:
    ggml_tensor* embed(const EmbedderWeights& w, ggml_tensor* e) {
        return exact_linear(g_, w.out_layer, ggml_silu(g_, exact_linear(g_, w.in_layer, e)));
    }

    // Shift, scale and gate from chunk number `first` on.
    Mod chunks(ggml_tensor* m, int64_t first) {
        const auto chunk = [&](int64_t i) {
            return ggml_view_1d(g_, m, sizes_.hidden, ggml_row_size(m->type, i * sizes_.hidden));
        };
        const bool has_gate = (first + 3) * sizes_.hidden <= m->ne[0];
        return {chunk(first), chunk(first + 1), has_gate ? chunk(first + 2) : nullptr};
    }

    bool has_kv_references() const {
        return references_ == ReferenceMode::extract && built_.shape.n_ref > 0;
    }

    ggml_tensor* condition(ggml_tensor* time) {
        ggml_tensor* vec = embed(parts_.time_in, time);
        if (built_.guidance != nullptr) {
            vec = ggml_add(g_, vec, embed(parts_.guidance_in, built_.guidance));
        }
        return ggml_silu(g_, vec);
    }

    PassMods time_mods() {
        const ExampleShape& shape = built_.shape;
        ggml_tensor* vec = condition(built_.time);
        ggml_tensor* img = exact_linear(g_, parts_.mod_img, vec);
        ggml_tensor* txt = exact_linear(g_, parts_.mod_txt, vec);
        ggml_tensor* single = exact_linear(g_, parts_.mod_single, vec);
        const int64_t n_img = shape.n_img + (has_kv_references() ? 0 : shape.n_ref);
        PassMods mods = {.img = {{{n_img, chunks(img, 0)}}, {{n_img, chunks(img, 3)}}},
                         .txt = {{{shape.n_txt, chunks(txt, 0)}}, {{shape.n_txt, chunks(txt, 3)}}},
                         .single = {{shape.n_txt + n_img, chunks(single, 0)}},
                         .final = chunks(exact_linear(g_, parts_.final_mod, vec), 0)};
        if (has_kv_references()) {
            ggml_tensor* zero = condition(built_.time_zero);
            img = exact_linear(g_, parts_.mod_img, zero);
            single = exact_linear(g_, parts_.mod_single, zero);
            mods.img.attn.push_back({shape.n_ref, chunks(img, 0)});
            mods.img.mlp.push_back({shape.n_ref, chunks(img, 3)});
            mods.single.push_back({shape.n_ref, chunks(single, 0)});
        }
        return mods;
    }

    ggml_tensor* join(const Streams& x) {
        const std::array parts = {x.txt, x.img};
        return join_columns(g_, parts);
    }

    // Keeps the inputs of all blocks, and of the last one everything.
    void forward(const PassContext& context, Streams x, const PassMods& mods) {
        for (const DoubleBlockWeights& block : parts_.double_blocks) {
            streams_.push_back(x);
            last_double_.emplace(context, block, x, mods.img, mods.txt);
            x = last_double_->result();
            begin_block(built_.block_order.size());
            g_.end_block({x.txt, x.img});
        }
        z_ = join(x);
        for (const SingleBlockWeights& block : parts_.single_blocks) {
            joined_.push_back(z_);
            last_single_.emplace(context, block, z_, mods.single);
            z_ = last_single_->result();
            begin_block(built_.block_order.size());
            g_.end_block({z_});
        }
    }

    bool trains(const SingleBlockWeights& block) const {
        return built_.pairs.contains(block.linear1) || built_.pairs.contains(block.linear2);
    }
    bool trains(const StreamWeights& s) const {
        return built_.pairs.contains(s.qkv) || built_.pairs.contains(s.proj) ||
               built_.pairs.contains(s.mlp_in) || built_.pairs.contains(s.mlp_out);
    }
    bool trains(const DoubleBlockWeights& block) const {
        return trains(block.img) || trains(block.txt);
    }

    // The first block that is trained: gradients need not go beyond it.
    size_t first_trained(bool trains_inputs) const {
        const size_t n_double = parts_.double_blocks.size();
        size_t i = 0;
        while (!trains_inputs && i < n_double + parts_.single_blocks.size() &&
               !(i < n_double ? trains(parts_.double_blocks[i])
                              : trains(parts_.single_blocks[i - n_double]))) {
            ++i;
        }
        return i;
    }

    // From the last block to the first that is trained; each but the last is computed once more.
    // Returns the gradients of the first block's inputs when inputs are trained.
    Streams backward(const PassContext& context, const FinalPass& final, const PassMods& mods,
                     bool trains_inputs) {
        const ExampleShape& shape = built_.shape;
        // Of the mean of squares.
        const auto n = static_cast<float>(ggml_nelements(built_.difference));
        ggml_tensor* dz = final.back(context, ggml_scale(g_, built_.difference, 2 / n));
        // Other tokens have no part in the loss.
        dz = ggml_pad_ext(g_, dz, 0, 0, static_cast<int>(shape.n_txt),
                          static_cast<int>(shape.n_ref), 0, 0, 0, 0);
        const size_t n_double = parts_.double_blocks.size();
        const size_t n_blocks = n_double + parts_.single_blocks.size();
        const size_t first = first_trained(trains_inputs);
        // Streamed blocks all end in a gradient, which is where the next one is entered.
        const auto wants_x = [&](size_t i) {
            return i > first || trains_inputs || network_.streams();
        };
        size_t i = n_blocks;
        for (; i > std::max(first, n_double); --i) {
            const size_t block = i - 1 - n_double;
            const bool is_last = i == n_blocks;
            begin_block(i - 1);
            const SinglePass pass = is_last ? *last_single_
                                            : SinglePass(context, parts_.single_blocks[block],
                                                         joined_[block], mods.single);
            dz = pass.back(context, dz, wants_x(i - 1));
            end_block(dz);
        }
        Streams d = {nullptr, nullptr};
        if (i > first) {
            d = {.img = columns(g_, dz, shape.n_txt, shape.n_img + shape.n_ref),
                 .txt = columns(g_, dz, 0, shape.n_txt)};
        }
        for (; i > first; --i) {
            const bool is_last = i == n_blocks;
            begin_block(i - 1);
            DoublePass pass = is_last ? *last_double_
                                      : DoublePass(context, parts_.double_blocks[i - 1],
                                                   streams_[i - 1], mods.img, mods.txt);
            d = pass.back(context, d, wants_x(i - 1));
            if (d.txt != nullptr) {
                g_.expand(d.txt);
            }
            end_block(d.img);
        }
        return d;
    }

    // Of the network: the next block of the graph computes it.
    void begin_block(size_t i) { built_.block_order.push_back(i); }

    void end_block(ggml_tensor* d) {
        if (d != nullptr) {
            g_.end_block({d});
        }
    }

    TrainingGraph& built_;
    Graph& g_;
    const FrozenNetwork& network_;
    const TransformerNetwork& parts_;
    const TransformerSizes& sizes_;
    const ReferenceMode references_;
    std::vector<Streams> streams_;      // inputs of double blocks
    std::vector<ggml_tensor*> joined_;  // inputs of single blocks
    ggml_tensor* z_ = nullptr;          // after all blocks
    std::optional<DoublePass> last_double_;
    std::optional<SinglePass> last_single_;
};

}  // namespace

void build_graph(TrainingGraph& built, const FrozenNetwork& network, const TransformerSizes& sizes,
                 const TrainedAdapter& adapter, const PairTransfer& transfer,
                 ReferenceMode references, bool wants_gradients) {
    Builder builder(built, network, sizes, references);
    builder.declare_inputs(adapter, transfer);
    builder.build(wants_gradients, wants_gradients && adapter.dropout() > 0);
}

}  // namespace flux2
