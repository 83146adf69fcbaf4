// Qwen3 as a text encoder: token ids -> hidden states of chosen layers, side by side.
// Follows Qwen3ForCausalLM of the transformers library with a right-padded batch of one.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "store/inventory.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace flux2 {

struct Qwen3Network;  // the weights by their role

// What a model file says beside its weights; the defaults are klein's.
struct Qwen3Facts {
    std::vector<int64_t> layers = {9, 18, 27};  // whose outputs are used, counted from 1
    float rope_theta = 1e6f;
    float eps = 1e-6f;
};

class Qwen3 {
  public:
    // Loads only the layers up to the last one used. Throws bad_file. The backend and the
    // checkpoint must outlive it.
    Qwen3(const Backend& backend, const Checkpoint& checkpoint, const Qwen3Facts& facts,
          const WeightOptions& options = {});
    ~Qwen3();

    const Qwen3Sizes& sizes() const { return sizes_; }

    // Features [n_layers_used * hidden, n] of n token ids, of which the first n_real are no
    // padding. Padding rows are computed too: the image transformer reads them. `taps` receives
    // hidden_0 (embedding) and hidden_1, hidden_2, ... (after layer 1, 2, ...).
    HostTensor encode(std::span<const int32_t> ids, int64_t n_real, Taps* taps = nullptr);

    // Builds the graph for n tokens ahead, or only lays it out when the backend measures.
    void reserve(int64_t n);
    // Of the current graph.
    MemoryUse compute_memory() const;
    const WeightMemory& weight_memory() const { return weights_.memory(); }
    // The current graph, for looking at its operations; null before the first call.
    const Graph* graph() const;

  private:
    struct Plan;

    Plan& plan_for(int64_t n, bool keep_taps);

    const Backend& backend_;
    Qwen3Sizes sizes_;
    Qwen3Facts facts_;
    Weights weights_;
    Form form_;
    std::unique_ptr<Qwen3Network> network_;
    std::unique_ptr<Plan> plan_;
};

}  // namespace flux2
