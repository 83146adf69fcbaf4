// The weights of a transformer for graphs that are computed forwards and backwards: plain, in
// whatever type they have.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "compute/backend.hpp"
#include "compute/weights.hpp"
#include "models/transformer_network.hpp"
#include "networks/sizes.hpp"

#include <ggml.h>

#include <string>

namespace flux2 {

class FrozenNetwork {
  public:
    // Throws bad_file as Transformer does. Backend and checkpoint must outlive it.
    FrozenNetwork(const Backend& backend, const Checkpoint& checkpoint,
                  const TransformerSizes& sizes, const WeightOptions& options);

    const TransformerNetwork& parts() const { return parts_; }
    // By its name without ".weight".
    ggml_tensor* matrix(const std::string& name) const;
    const WeightMemory& memory() const { return weights_.memory(); }
    // Whether blocks are copied to the device in turn: then a graph says before each which block it
    // computes, and which after it.
    bool streams() const { return weights_.streams(); }
    void enter_block(size_t i, size_t next) { weights_.enter_block(i, next); }

  private:
    Weights weights_;
    TransformerNetwork parts_;
};

}  // namespace flux2
