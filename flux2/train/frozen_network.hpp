// The weights of a transformer by their role, for graphs that are computed forwards and backwards.
// They stay plain, in whatever type they have.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "compute/backend.hpp"
#include "compute/weights.hpp"
#include "networks/sizes.hpp"

#include <ggml.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace flux2 {

struct FrozenStream {  // one of the two streams of a double block
    ggml_tensor *qkv, *q_norm, *k_norm, *proj, *mlp_in, *mlp_out;
};

struct FrozenDoubleBlock {
    FrozenStream img, txt;
};

struct FrozenSingleBlock {
    ggml_tensor *linear1, *linear2, *q_norm, *k_norm;
};

struct FrozenEmbedder {  // of time or guidance
    ggml_tensor *in_layer = nullptr, *out_layer = nullptr;
};

class FrozenNetwork {
  public:
    // Throws bad_file as Transformer does. Backend and checkpoint must outlive it.
    FrozenNetwork(const Backend& backend, const Checkpoint& checkpoint,
                  const TransformerSizes& sizes, const WeightOptions& options);

    ggml_tensor *img_in, *txt_in;
    FrozenEmbedder time_in, guidance_in;
    ggml_tensor *mod_img, *mod_txt, *mod_single;
    std::vector<FrozenDoubleBlock> double_blocks;
    std::vector<FrozenSingleBlock> single_blocks;
    ggml_tensor *final_mod, *final_linear;

    // By its name without ".weight".
    ggml_tensor* matrix(const std::string& name) const { return matrices_.at(name); }
    const WeightMemory& memory() const { return weights_.memory(); }

  private:
    ggml_tensor* declare(const std::string& name);
    FrozenStream declare_stream(const std::string& prefix);

    Weights weights_;
    std::unordered_map<std::string, ggml_tensor*> matrices_;
};

}  // namespace flux2
