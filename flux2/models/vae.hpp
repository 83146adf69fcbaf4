// The FLUX.2 autoencoder: pictures <-> normalised latents.
// Follows autoencoder.py of the original authors; widths of encoder and decoder may differ.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "networks/sizes.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace flux2 {

struct VaeNetwork;  // the weights by their role

class Vae {
  public:
    // Throws bad_file. The backend and the checkpoint must outlive it.
    Vae(const Backend& backend, const VaeSizes& sizes, const Checkpoint& checkpoint,
        const WeightOptions& options = {});
    ~Vae();

    const VaeSizes& sizes() const { return sizes_; }

    // Pixels [w, h, 3] in -1..1, sides a multiple of 16 -> latents [w/16, h/16, 128], normalised:
    // the mean of the distribution, never a sample.
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

    const Backend& backend_;
    VaeSizes sizes_;
    HostTensor mean_, deviation_;  // of the latent channels
    Weights weights_;
    Form form_;
    std::unique_ptr<VaeNetwork> network_;
    std::unique_ptr<Plan> plan_;
};

// 2x2 pixels become channels: [2w, 2h, c] <-> [w, h, 4c], channel c*4 + row*2 + column.
HostTensor patchify(const HostTensor& x);
HostTensor unpatchify(const HostTensor& x);

}  // namespace flux2
