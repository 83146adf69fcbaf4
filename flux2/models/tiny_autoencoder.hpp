// TAEF2, the tiny autoencoder for FLUX.2: pictures <-> normalised latents, roughly and fast.
// Follows taesd.py of madebyollin/taesd. Unlike the autoencoder it takes the transformer's latents
// as they are: no statistics are applied.
#pragma once

#include "models/autoencoder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace flux2 {

struct TinyNetwork;  // the weights by their role

class TinyAutoencoder : public Autoencoder {
  public:
    // Throws bad_file. The backend and the checkpoint must outlive it.
    TinyAutoencoder(const Backend& backend, const TinyAutoencoderSizes& sizes,
                    const Checkpoint& checkpoint, const WeightOptions& options = {});
    ~TinyAutoencoder() override;

  private:
    size_t max_nodes(int64_t w, int64_t h) const override;
    ggml_tensor* encode_graph(Graph& g, ggml_tensor* pixels) const override;
    ggml_tensor* decode_graph(Graph& g, ggml_tensor* latents) const override;

    TinyAutoencoderSizes sizes_;
    std::unique_ptr<TinyNetwork> network_;
};

}  // namespace flux2
