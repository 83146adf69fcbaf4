// TAEF2, the tiny autoencoder for FLUX.2: pictures <-> normalised latents, roughly and fast.
// Follows taesd.py of madebyollin/taesd. Unlike the autoencoder it takes the transformer's latents
// as they are: no statistics are applied.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "networks/sizes.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace flux2 {

struct TinyNetwork;  // the weights by their role

class TinyAutoencoder {
  public:
    // Throws bad_file. The backend and the checkpoint must outlive it.
    TinyAutoencoder(const Backend& backend, const TinyAutoencoderSizes& sizes,
                    const Checkpoint& checkpoint, const WeightOptions& options = {});
    ~TinyAutoencoder();

    const TinyAutoencoderSizes& sizes() const { return sizes_; }

    // Pixels [w, h, 3] in -1..1, sides a multiple of 16 -> latents [w/16, h/16, 128]. Throws
    // bad_file when the file holds the decoder alone.
    HostTensor encode(const HostTensor& pixels);
    // Latents [w/16, h/16, 128] -> pixels [w, h, 3], not clamped.
    HostTensor decode(const HostTensor& latents);

    // Build the graph for a picture of w x h pixels ahead, or only lay it out when the backend
    // measures.
    void reserve_encode(int64_t w, int64_t h);
    void reserve_decode(int64_t w, int64_t h);
    // Of the last graph; release_buffers() gives that memory back.
    MemoryUse compute_memory() const;
    void release_buffers();
    const WeightMemory& weight_memory() const { return weights_.memory(); }
    // The current graph, for looking at its operations; null before the first call.
    const Graph* graph() const;

  private:
    struct Plan;

    Plan& plan_for(bool decoding, const std::array<int64_t, 4>& ne);
    HostTensor compute(bool decoding, const HostTensor& input);

    const Backend& backend_;
    TinyAutoencoderSizes sizes_;
    Weights weights_;
    Form form_;
    std::unique_ptr<TinyNetwork> network_;
    std::unique_ptr<Plan> plan_;
};

}  // namespace flux2
