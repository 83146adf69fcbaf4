// The graph for examples of one shape: forwards, and backwards when gradients are wanted.
#pragma once

#include "compute/graph.hpp"
#include "train/block_passes.hpp"
#include "train/frozen_network.hpp"
#include "train/pair_transfer.hpp"
#include "train/trained_adapter.hpp"
#include "train/training_pass.hpp"

#include <ggml.h>

#include <array>
#include <cstddef>
#include <vector>

namespace flux2 {

struct TrainingGraph {
    TrainingGraph(const Backend& backend, size_t max_nodes, const Form& form,
                  const ExampleShape& used)
        : graph(backend, max_nodes, form), shape(used) {}

    Graph graph;
    ExampleShape shape;
    TrainedPairs pairs;
    std::vector<const TrainedPair*> in_order;  // of the adapter's modules
    // Inputs.
    ggml_tensor *img = nullptr, *txt = nullptr;  // tokens [channels, n], [text_width, n]
    // Embedded; without need null. The references of KV models have the time zero.
    ggml_tensor *time = nullptr, *time_zero = nullptr, *guidance = nullptr;
    std::array<ggml_tensor*, Rope::kMaxAxes> pos = {};
    ggml_tensor* target = nullptr;    // [channels, n_img]
    std::vector<size_t> block_order;  // which block of the network each block of the graph is
    // Results.
    ggml_tensor* velocity = nullptr;    // [channels, n_img]
    ggml_tensor* difference = nullptr;  // velocity - target
};

// Builds it; all are borrowed. Throws out_of_memory.
void build_graph(TrainingGraph& built, const FrozenNetwork& network, const TransformerSizes& sizes,
                 const TrainedAdapter& adapter, const PairTransfer& transfer,
                 ReferenceMode references, bool wants_gradients);

}  // namespace flux2
