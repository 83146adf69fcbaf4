// What the autoencoders of FLUX.2 have in common: pictures <-> normalised latents, by one graph
// that is kept while its direction and its shape stay the same.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/graph.hpp"
#include "compute/ops/feature_map_ops.hpp"
#include "compute/weights.hpp"
#include "networks/part.hpp"
#include "networks/sizes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {

// How much memory a computation takes, from the fastest to the smallest. In bands its feature maps
// are computed some rows at a time; the results are the same, up to the rounding of the decoder's
// kept maps to F16 on NVIDIA GPUs. The encoder keeps none of its first level then.
enum class MapMemory {
    whole,               // every feature map as a whole
    bands,               // maps that later operations read several times are kept, no others
    upsampled_in_bands,  // upsampled maps are computed again where they are read
    all_in_bands,        // one map is kept at each level, all others are computed again
};
inline constexpr std::array kAllMapMemory = {
    MapMemory::whole, MapMemory::bands, MapMemory::upsampled_in_bands, MapMemory::all_in_bands};

class Autoencoder {
  public:
    virtual ~Autoencoder();
    Autoencoder(const Autoencoder&) = delete;
    Autoencoder& operator=(const Autoencoder&) = delete;

    int64_t latent_channels() const { return traits_.latent_channels; }
    // Files of the tiny one may hold the decoder alone.
    bool has_encoder() const { return traits_.has_encoder; }

    // Pixels [w, h, 3] in -1..1, sides a multiple of 16 -> latents [w/16, h/16, 4 * latent
    // channels], normalised. Throws bad_file without an encoder.
    HostTensor encode(const HostTensor& pixels);
    // Latents [w/16, h/16, 4 * latent channels] -> pixels [w, h, 3], not clamped.
    HostTensor decode(const HostTensor& latents);

    // Only `whole` where graphs consist of ggml's operations alone.
    bool can_use(MapMemory memory) const;
    // From the next picture on; at first `whole`, which stays where the memory given cannot be
    // used. Bands have so many values; maps of a few bands are computed as a whole.
    static constexpr int64_t kBandValues = int64_t{1} << 24;
    void set_map_memory(MapMemory memory, int64_t band_values = kBandValues);

    // Build the graph for a picture of w x h pixels ahead, or only lay it out when the backend
    // measures.
    void reserve_encode(int64_t w, int64_t h);
    void reserve_decode(int64_t w, int64_t h);
    // Of the last graph; release_buffers() gives that memory back.
    MemoryUse compute_memory() const;
    void release_buffers();
    const WeightMemory& weight_memory() const { return weights_.memory(); }
    // The current graph, for looking at its operations or computing it once more; null before the
    // first call.
    Graph* graph() const;

  protected:
    struct Traits {
        Part part;
        int64_t latent_channels;
        bool has_encoder;
    };

    // Throws bad_file. The backend and the checkpoint must outlive it.
    Autoencoder(const Backend& backend, const Checkpoint& checkpoint,
                const std::vector<ExpectedTensor>& tensors, const WeightOptions& options,
                const Traits& traits);

    Weights& weights() { return weights_; }
    const Weights& weights() const { return weights_; }
    MapMemory map_memory() const { return map_memory_; }
    int64_t band_values() const { return form_.band_values; }
    // To be called once all tensors are declared: chooses the form of the graph and loads them.
    // `suits_cuda` as choose_feature_map_form says.
    void load(bool suits_cuda);

  private:
    struct BuiltGraph;  // with its inputs

    // Of a graph for pictures of w x h pixels.
    virtual size_t max_nodes(int64_t w, int64_t h) const = 0;
    // Whether NVIDIA GPUs hold the decoder's maps in F16 when they are in bands.
    virtual bool halves_bands() const { return false; }
    // Pixels [w, h, 3] -> [w/8, h/8, latent channels]
    virtual ggml_tensor* encode_graph(Graph& g, ggml_tensor* pixels) const = 0;
    // [w/8, h/8, latent channels] -> pixels [w, h, 3]
    virtual ggml_tensor* decode_graph(Graph& g, ggml_tensor* latents) const = 0;
    // Between what the graphs make and take and normalised latents [w/16, h/16, 4 * latent
    // channels].
    virtual void normalise(HostTensor& /*latents*/) const {}
    virtual void denormalise(HostTensor& /*latents*/) const {}

    BuiltGraph& graph_for(bool decoding, const std::array<int64_t, 4>& ne);
    HostTensor compute(bool decoding, const HostTensor& input);

    const Backend& backend_;
    Traits traits_;
    bool wants_f32_;
    Weights weights_;
    Form form_;
    MapMemory map_memory_ = MapMemory::whole;
    std::unique_ptr<BuiltGraph> built_;
};

// A convolution of the network: name.weight and name.bias.
Conv load_conv(Weights& w, const std::string& name);

// 2x2 pixels become channels: [2w, 2h, c] <-> [w, h, 4c], channel c*4 + row*2 + column.
HostTensor patchify(const HostTensor& x);
HostTensor unpatchify(const HostTensor& x);

}  // namespace flux2
