// One example through the transformer and back: its loss, and the gradients of a LoRA's parameters.
// On CPUs everything is computed in F32, on NVIDIA GPUs what matrices are multiplied with is BF16
// (compute/ops/gradient_ops); the weights stay as they are in memory. Block inputs are kept, and
// each block is computed once more before its backward pass, so that memory does not grow with what
// happens inside of the blocks.
#pragma once

#include "base/host_tensor.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/backend.hpp"
#include "compute/weights.hpp"
#include "models/transformer_network.hpp"
#include "networks/sizes.hpp"
#include "train/trained_adapter.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace flux2 {

// A picture as tokens [channels, height * width], row by row.
struct LatentGrid {
    HostTensor tokens;
    int64_t height = 0, width = 0;
};

struct TrainingExample {
    LatentGrid picture;            // what the model should learn to make
    HostTensor noise;              // [channels, height * width], standard normal
    float time = 0;                // in [0, 1]: the model sees (1 - time) * picture + time * noise
    SharedTensor txt = share({});  // text features [text_width, n_txt]
    std::vector<LatentGrid> references = {};  // seen by the model; no part of the loss
    float guidance = 1;                       // for models with a guidance input
    uint64_t dropout_seed = 0;                // of what the adapter's dropout leaves out
};

// What the work for an example depends on.
struct ExampleShape {
    int64_t n_img = 0, n_ref = 0, n_txt = 0;  // tokens

    bool operator==(const ExampleShape&) const = default;
};
ExampleShape shape_of(const TrainingExample& example);

class TrainingPass {
  public:
    // All are borrowed; the adapter's parameters may change between calls. Matrices keep the type
    // that `options` or the file say, and are never repacked. `operations`: of another device,
    // whose kernels are to be checked by plain forms; else the backend's. `references`: joint, or
    // extract for KV models, as in their first step. Throws bad_file as Transformer does,
    // unsupported for a device without operations of our own.
    TrainingPass(const Backend& backend, const Checkpoint& checkpoint,
                 const TrainedAdapter& adapter, const WeightOptions& options = {},
                 std::optional<Operations> operations = std::nullopt,
                 ReferenceMode references = ReferenceMode::joint);
    ~TrainingPass();

    const TransformerSizes& sizes() const;

    // The mean squared error of the velocity, without dropout. Throws bad_argument for an example
    // whose sizes do not fit together or the model.
    double loss(const TrainingExample& example);
    // The same with dropout; adds its derivatives times `weight` to the gradients, which lie as the
    // adapter's parameters do. The same bits for the same number of threads.
    double add_gradients(const TrainingExample& example, float weight, std::span<float> gradients);
    // Of the last example [channels, n_img].
    const HostTensor& velocity() const;

    // Lays out the graph for a shape: what it takes beside the weights, for gradients or for
    // loss(), whose graph is kept apart. With a backend that measures nothing is allocated.
    MemoryUse compute_memory(const ExampleShape& shape, bool wants_gradients = true);
    WeightMemory weight_memory() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace flux2
