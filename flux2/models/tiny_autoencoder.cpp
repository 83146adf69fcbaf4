#include "models/tiny_autoencoder.hpp"

#include "base/check.hpp"
#include "compute/ops/banded_map.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

namespace flux2 {
namespace {

constexpr int kPoolGroups = 4;
constexpr float kPoolEps = 1e-5f;
constexpr float kClamp = 3;  // latents stay between -3 and 3
constexpr size_t kStages = std::tuple_size_v<TinyStages>;

struct Pool {
    ggml_tensor* widen = nullptr;  // empty in blocks without one
    GroupNorm norm;
    ggml_tensor* narrow = nullptr;
};

struct Block {
    Pool pool;
    std::array<Conv, 3> conv;
};

struct Stage {
    std::vector<Block> blocks;
    ggml_tensor* resample = nullptr;  // to the next stage; empty at the last
};

}  // namespace

struct TinyNetwork {
    struct {
        Conv conv_in, conv_out;
        std::array<Stage, kStages> stages;
    } encoder, decoder;  // in the order of computation
};

namespace {

// ---- Weights ----

Pool load_pool(Weights& w, const std::string& name) {
    return {.widen = w.filter(name + ".0.weight"),
            .norm = {.weight = w.vector(name + ".1.weight"), .bias = w.vector(name + ".1.bias")},
            .narrow = w.filter(name + ".3.weight")};
}

Block load_block(Weights& w, const std::string& name, bool pools) {
    return {.pool = pools ? load_pool(w, name + ".pool") : Pool{},
            .conv = {load_conv(w, name + ".conv.0"), load_conv(w, name + ".conv.2"),
                     load_conv(w, name + ".conv.4")}};
}

void load_stages(Weights& w, const std::string& half, const TinyStages& layers,
                 std::array<Stage, kStages>& stages) {
    const auto name = [&](int layer) { return half + std::to_string(layer); };
    for (size_t i = 0; i < kStages; ++i) {
        for (int j = 0; j < layers[i].n_blocks; ++j) {
            stages[i].blocks.push_back(
                load_block(w, name(layers[i].first_block + j), layers[i].pools));
        }
        if (layers[i].resample != 0) {
            stages[i].resample = w.filter(name(layers[i].resample) + ".weight");
        }
    }
}

void load_network(Weights& w, bool has_encoder, TinyNetwork& n) {
    if (has_encoder) {
        n.encoder.conv_in = load_conv(w, "encoder.0");
        load_stages(w, "encoder.", kTinyEncoderStages, n.encoder.stages);
        n.encoder.conv_out = load_conv(w, "encoder.14");
    }
    n.decoder.conv_in = load_conv(w, "decoder.1");
    load_stages(w, "decoder.", kTinyDecoderStages, n.decoder.stages);
    n.decoder.conv_out = load_conv(w, "decoder.19");
}

// ---- Graph ----

// Filters that come without a bias get zeros from one vector, which is as long as any needs.
struct Zeros {
    ggml_tensor* vector;

    Conv bias_for(Graph& g, ggml_tensor* filter) const {
        return {filter, ggml_view_1d(g, vector, filter->ne[3], 0)};
    }
};

Zeros make_zeros(Graph& g, const TinyAutoencoderSizes& s) {
    const int64_t longest = std::max(s.width, s.pool_width);
    return {g.constant("zeros", std::vector<float>(static_cast<size_t>(longest)))};
}

FeatureMap block(Graph& g, const Block& w, const Zeros& zeros, FeatureMap x) {
    if (w.pool.widen != nullptr) {
        const FeatureMap wide = conv(g, zeros.bias_for(g, w.pool.widen), x);
        const FeatureMap pooled = group_norm_relu(g, w.pool.norm, wide, kPoolGroups, kPoolEps);
        x = conv_add(g, zeros.bias_for(g, w.pool.narrow), pooled, x);
    }
    FeatureMap h = relu(g, conv(g, w.conv[0], x));
    h = relu(g, conv(g, w.conv[1], h));
    h = relu(g, conv_add(g, w.conv[2], h, x));
    g.end_block({h.tensor});
    return h;
}

// In the memory of x. Blocks with a pool are those of the smallest maps, which are whole.
BandedMap block(Graph& g, const Block& w, BandedMap x) {
    const BandedMap first = relu(g, conv(g, w.conv[0], x));
    const BandedMap second = relu(g, conv(g, w.conv[1], first));
    replace(g, x, second, /*around=*/1, [&](const FeatureMap& h, const Rows& rows) {
        return relu(g, conv_add(g, w.conv[2], h, x.rows(rows)));
    });
    return x;
}

// The network over maps that are whole or, where they are larger than a band, computed in bands.
class Layers {
  public:
    Layers(Graph& g, const Zeros& zeros) : g_(g), zeros_(zeros) {}

    BandedMap run(const Stage& stage, BandedMap x) const {
        for (const Block& w : stage.blocks) {
            x = in_bands(x.size()) && w.pool.widen == nullptr
                    ? block(g_, w, x)
                    : BandedMap(g_, block(g_, w, zeros_, x.whole()));
        }
        return x;
    }

    BandedMap up(ggml_tensor* filter, const BandedMap& x) const {
        const Conv w = zeros_.bias_for(g_, filter);
        const BandedMap y = conv_up(g_, w, x);
        return in_bands(y.size()) ? kept(g_, y) : BandedMap(g_, conv_up(g_, w, x.whole()));
    }

    BandedMap down(ggml_tensor* filter, const BandedMap& x) const {
        const Conv w = zeros_.bias_for(g_, filter);
        return in_bands(x.size()) ? kept(g_, conv_down_centred(g_, w, x))
                                  : BandedMap(g_, conv_down_centred(g_, w, x.whole()));
    }

    BandedMap layer(const Conv& w, const BandedMap& x) const {
        const BandedMap y = conv(g_, w, x);
        return in_bands(x.size()) || in_bands(y.size()) ? kept(g_, y)
                                                        : BandedMap(g_, conv(g_, w, x.whole()));
    }

  private:
    bool in_bands(const MapSize& size) const { return is_large(g_, size); }

    Graph& g_;
    Zeros zeros_;
};

// pixels [w, h, 3] in -1..1 -> [w/8, h/8, latent channels]
ggml_tensor* encoder(Graph& g, const TinyNetwork& n, const Zeros& zeros, ggml_tensor* pixels) {
    const auto& e = n.encoder;
    const Layers layers(g, zeros);
    const FeatureMap planes = from_planes(g, ggml_scale_bias(g, pixels, 0.5f, 0.5f));
    BandedMap x = layers.layer(e.conv_in, BandedMap(g, planes));
    for (const Stage& stage : e.stages) {
        x = layers.run(stage, x);
        if (stage.resample != nullptr) {
            x = layers.down(stage.resample, x);
        }
    }
    return to_planes(g, conv(g, e.conv_out, x.whole()));
}

// latents [w/8, h/8, latent channels] -> [w, h, 3] in -1..1
ggml_tensor* decoder(Graph& g, const TinyNetwork& n, const Zeros& zeros, ggml_tensor* latents) {
    const auto& d = n.decoder;
    const Layers layers(g, zeros);
    latents = ggml_scale(g, ggml_tanh(g, ggml_scale(g, latents, 1 / kClamp)), kClamp);
    BandedMap x(g, relu(g, conv(g, d.conv_in, from_planes(g, latents))));
    for (const Stage& stage : d.stages) {
        x = layers.run(stage, x);
        if (stage.resample != nullptr) {
            x = layers.up(stage.resample, x);
        }
    }
    return ggml_scale_bias(g, to_planes(g, layers.layer(d.conv_out, x).whole()), 2, -1);
}

}  // namespace

TinyAutoencoder::TinyAutoencoder(const Backend& backend, const TinyAutoencoderSizes& sizes,
                                 const Checkpoint& checkpoint, const WeightOptions& options)
    : Autoencoder(backend, checkpoint, tensor_list(sizes), options,
                  {.part = Part::tiny_autoencoder,
                   .latent_channels = sizes.latent_channels,
                   .has_encoder = sizes.has_encoder}),
      sizes_(sizes),
      network_(std::make_unique<TinyNetwork>()) {
    constexpr int64_t kChannelsAtOnce = 8;  // what the CUDA form reads
    check(sizes_.pool_width % kPoolGroups == 0, ErrorKind::bad_file, weights().file(),
          ": its pools are ", sizes_.pool_width, " channels wide, which do not divide into ",
          kPoolGroups, " groups; the file is broken");
    load_network(weights(), sizes_.has_encoder, *network_);
    load(/*suits_cuda=*/sizes_.width % kChannelsAtOnce == 0);
}

TinyAutoencoder::~TinyAutoencoder() = default;

size_t TinyAutoencoder::max_nodes(int64_t w, int64_t h) const {
    constexpr int64_t kNodesOfBand = 128;
    constexpr int64_t kMargin = 64;
    const int64_t in_bands =
        band_values() == 0 ? 0 : kNodesOfBand * (w * h * sizes_.width / band_values() + kMargin);
    return static_cast<size_t>(1024 + in_bands);
}

ggml_tensor* TinyAutoencoder::encode_graph(Graph& g, ggml_tensor* pixels) const {
    return encoder(g, *network_, make_zeros(g, sizes_), pixels);
}

ggml_tensor* TinyAutoencoder::decode_graph(Graph& g, ggml_tensor* latents) const {
    return decoder(g, *network_, make_zeros(g, sizes_), latents);
}

}  // namespace flux2
