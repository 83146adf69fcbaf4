// The FLUX.2 autoencoder: pictures <-> normalised latents.
// Follows autoencoder.py of the original authors; widths of encoder and decoder may differ.
#pragma once

#include "models/autoencoder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace flux2 {

struct VaeNetwork;  // the weights by their role

// Its encoder gives the mean of the distribution, never a sample.
class Vae : public Autoencoder {
  public:
    // Throws bad_file. The backend and the checkpoint must outlive it.
    Vae(const Backend& backend, const VaeSizes& sizes, const Checkpoint& checkpoint,
        const WeightOptions& options = {});
    ~Vae() override;

    const VaeSizes& sizes() const { return sizes_; }

  private:
    size_t max_nodes(int64_t w, int64_t h) const override;
    bool halves_bands() const override { return true; }
    ggml_tensor* encode_graph(Graph& g, ggml_tensor* pixels) const override;
    ggml_tensor* decode_graph(Graph& g, ggml_tensor* latents) const override;
    void normalise(HostTensor& latents) const override;
    void denormalise(HostTensor& latents) const override;

    VaeSizes sizes_;
    HostTensor mean_, deviation_;  // of the latent channels
    std::unique_ptr<VaeNetwork> network_;
};

}  // namespace flux2
