// A language model as a text encoder: token ids -> hidden states of chosen layers, concatenated.
// Follows Qwen3ForCausalLM and MistralForCausalLM of the transformers library with a padded batch
// of one, whose padding is on the right for Qwen3 and on the left for Mistral.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "networks/sizes.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace flux2 {

struct TextEncoderNetwork;  // the weights by their role

// What a model file says beside its weights; the defaults are klein's.
struct TextEncoderFacts {
    std::vector<int64_t> layers = {9, 18, 27};  // whose outputs are used, counted from 1
    float rope_theta = 1e6f;
    float eps = 1e-6f;
};

class TextEncoder {
  public:
    // Loads only the layers up to the last one used. Throws bad_file. The backend and the
    // checkpoint must outlive it.
    TextEncoder(const Backend& backend, const TextEncoderSizes& sizes,
                const TextEncoderFacts& facts, const Checkpoint& checkpoint,
                const WeightOptions& options = {});
    ~TextEncoder();

    const TextEncoderSizes& sizes() const { return sizes_; }

    // Features [n_layers_used * hidden, n] of n token ids, of which the first n_real (of Mistral
    // the last) are no padding. Padding rows are computed too: the image transformer reads them.
    // `taps` receives hidden_0 (embedding) and hidden_1, hidden_2, ... (after layer 1, 2, ...).
    HostTensor encode(std::span<const int32_t> ids, int64_t n_real, Taps* taps = nullptr);

    // As those of Weights.
    const std::shared_ptr<const AdapterSet>& adapters() const { return weights_.adapters(); }
    bool can_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) const {
        return weights_.can_set_adapters(adapters);
    }
    bool try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters);

    // Builds the graph for n tokens ahead, or only lays it out when the backend measures.
    void reserve(int64_t n);
    // Of the current graph.
    MemoryUse compute_memory() const;
    const WeightMemory& weight_memory() const { return weights_.memory(); }
    const std::string& weight_layout() const { return weights_.layout(); }
    // The current graph, for looking at its operations or computing it once more; null before the
    // first call.
    Graph* graph() const;

  private:
    struct BuiltGraph;  // with its inputs

    BuiltGraph& graph_for(int64_t n, bool keep_taps);

    const Backend& backend_;
    TextEncoderSizes sizes_;
    TextEncoderFacts facts_;
    Weights weights_;
    Form form_;
    std::unique_ptr<TextEncoderNetwork> network_;
    std::unique_ptr<BuiltGraph> built_;
};

}  // namespace flux2
