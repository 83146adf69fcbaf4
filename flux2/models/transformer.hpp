// The Flux2 transformer: latent tokens, positions, text features and a time -> velocity, on one
// device or with its blocks on several. The network itself is in models/transformer_network.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "models/transformer_network.hpp"
#include "networks/sizes.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace flux2 {

// Where a token stands: time, row, column, place in the text.
using Position = std::array<int32_t, Rope::kMaxAxes>;

struct TransformerInput {
    HostTensor img;  // latent tokens of one or more pictures [channels, n_img, n_pictures]
    HostTensor ref;  // tokens of reference pictures [channels, n_ref]; empty when there are none
    // Text features [text_width, n_txt]: large, so the device keeps them while it is given the
    // same.
    SharedTensor txt = share({});
    // Of the same shape. If it is there, every picture is computed with both texts.
    SharedTensor negative_txt = nullptr;
    std::vector<Position> img_pos, ref_pos, txt_pos;
    float timestep = 0;  // in [0, 1]; only the embedding multiplies it by 1000
    float guidance = 0;  // used by models with a guidance input only
};

// A device that computes some of the blocks, by how much it holds of them in proportion to others.
struct BlockShare {
    const Backend* backend;
    double share;  // above 0
};

// Which blocks a device computes; double blocks are counted first.
struct BlockRange {
    const Backend* backend;
    size_t first, end;
    MemoryUse weights, compute;
};

// What is copied between two devices, or a device and the host, at each call of predict().
struct Crossing {
    const Backend* from;       // null: the host
    const Backend* to;         // likewise
    uint64_t activations = 0;  // latents, tokens between blocks, the velocity
    uint64_t others = 0;       // modulation, times
};

// Weights of one model on one device, or blocks of it on several, which compute in turn. Graphs are
// kept while shapes stay the same.
class Transformer {
  public:
    // Throws bad_file for a checkpoint that lacks tensors of a network of these sizes. The backends
    // and the checkpoint must outlive it.
    Transformer(const Backend& backend, const TransformerSizes& sizes, const Checkpoint& checkpoint,
                const WeightOptions& options = {});
    // Each device gets a row of blocks, in this order. Throws bad_argument when there are more
    // devices than blocks.
    Transformer(const std::vector<BlockShare>& shares, const TransformerSizes& sizes,
                const Checkpoint& checkpoint, const WeightOptions& options = {});
    ~Transformer();

    const TransformerSizes& sizes() const { return sizes_; }

    // The velocity of the image tokens [channels, n_img, n_pictures]; with a negative text twice as
    // many, those of the first text first. Mode extract takes one picture and one text. In mode
    // cached `input.ref` is ignored and the keys and values of the last extract call are used.
    // `taps`, when given, receives intermediate results: vec, img_in, txt_in, double_i.0 (text),
    // double_i.1 (image), single_i.
    HostTensor predict(const TransformerInput& input, ReferenceMode mode = ReferenceMode::joint,
                       Taps* taps = nullptr);

    // As those of Weights, for all devices together.
    const std::shared_ptr<const AdapterSet>& adapters() const;
    bool can_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) const;
    bool try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters);

    // Builds the graph for a shape ahead, or only lays it out when the backend measures.
    void reserve(const TransformerShape& shape);
    // Of the current graph, and of what is kept of references.
    MemoryUse compute_memory() const;
    WeightMemory weight_memory() const;
    // Where the blocks are; memory is that of the current graph.
    std::vector<BlockRange> block_ranges() const;
    // Of the current graph.
    std::vector<Crossing> crossings() const;
    // The current graph, of the first device when there are several, for looking at its operations
    // or computing it once more; null before the first call.
    Graph* graph() const;
    // Of all devices, in the order of block_ranges.
    std::vector<Graph*> graphs() const;

  private:
    struct Section;     // the blocks on one device
    struct BuiltGraph;  // with its inputs
    struct KvCache;

    size_t n_blocks() const { return static_cast<size_t>(sizes_.n_double + sizes_.n_single); }
    BuiltGraph& graph_for(const TransformerShape& shape, bool keep_taps);
    void feed(BuiltGraph& built, const TransformerInput& input);
    void prepare_cache(int64_t n_ref);
    void drop_adapters();

    TransformerSizes sizes_;
    std::vector<std::unique_ptr<Section>> sections_;
    std::unique_ptr<TransformerNetwork> network_;
    std::unique_ptr<KvCache> cache_;
    std::unique_ptr<BuiltGraph> built_;
};

// How many blocks each device gets, by the size of their weights; at least one each. Throws
// bad_argument when there are more devices than blocks.
std::vector<size_t> share_blocks(const TransformerSizes& sizes, const std::vector<double>& shares);

}  // namespace flux2
