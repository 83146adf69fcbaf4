// The matrices of an adapter to the inputs of a graph, and their gradients back: through host
// memory that the device copies from and to directly, prepared by several threads.
#pragma once

#include "compute/backend.hpp"
#include "compute/graph.hpp"
#include "train/block_passes.hpp"
#include "train/trained_adapter.hpp"

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

class PairTransfer {
  public:
    // Both are borrowed. Throws out_of_memory; a backend that only measures allocates nothing.
    PairTransfer(const Backend& backend, const TrainedAdapter& adapter);

    // Declares the inputs for the matrices of a module of the adapter. Ranks are filled up with
    // zeros to what kernels take.
    void declare(Graph& g, size_t module, TrainedPair& pair) const;

    // `pairs` are in the order of the adapter's modules. B, or a LoKr's W1, gets the adapter's
    // scale.
    void send(Graph& g, std::span<const TrainedPair* const> pairs);
    // Adds weight * their gradients to those of the parameters.
    void add_gradients(const Graph& g, std::span<const TrainedPair* const> pairs, float weight,
                       std::span<float> gradients);

  private:
    // One matrix.
    struct Item {
        size_t module;
        TrainedFactor TrainedPair::*factor;  // what it is
        TrainedMatrix matrix;
        int64_t n_in, n_out;  // in graphs
        float scale;
        size_t first;  // of its values in the host memory

        size_t size() const { return static_cast<size_t>(n_in * n_out); }
    };
    void add_items(size_t module);
    std::span<float> place(const Item& item) const;
    void fill(const Item& item) const;
    void add(const Item& item, float weight, std::span<float> gradients) const;

    const Backend& backend_;
    const TrainedAdapter& adapter_;
    std::vector<Item> items_;
    ggml_backend_buffer_ptr memory_;
};

}  // namespace flux2
