// The pairs of a LoRA to the inputs of a graph, and their gradients back: through host memory that
// the device copies from and to directly, prepared by several threads.
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

    // Of pairs in graphs: the adapter's, filled up with zeros to what kernels take.
    int64_t rank() const { return rank_; }

    // `pairs` are in the order of the adapter's modules. B gets the adapter's scale.
    void send(Graph& g, std::span<const TrainedPair* const> pairs);
    // Adds weight * their gradients to those of the parameters.
    void add_gradients(const Graph& g, std::span<const TrainedPair* const> pairs, float weight,
                       std::span<float> gradients);

  private:
    struct Places {
        std::span<float> a, b;
    };
    // Of a module's values in the host memory.
    Places places(size_t module) const;

    const Backend& backend_;
    const TrainedAdapter& adapter_;
    int64_t rank_;
    std::vector<size_t> first_;  // of each module's values
    ggml_backend_buffer_ptr memory_;
};

}  // namespace flux2
