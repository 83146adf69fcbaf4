#include "models/vae.hpp"

#include "base/check.hpp"
#include "compute/ops/banded_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace flux2 {

namespace {

struct Resnet {
    GroupNorm norm1, norm2;
    Conv conv1, conv2;
    Conv shortcut;  // empty when the width stays the same
};

struct Attention {
    GroupNorm norm;
    Conv q, k, v, proj_out;
};

struct Mid {
    Resnet block_1, block_2;
    Attention attn_1;
};

struct Level {
    std::vector<Resnet> blocks;
    Conv resample;  // empty at the last level
};

constexpr float kBatchNormEps = 1e-4f;  // of the latent statistics; not PyTorch's default

}  // namespace

struct VaeNetwork {
    struct {
        Conv conv_in, conv_out, quant_conv;
        std::array<Level, VaeSizes::kLevels> down;
        Mid mid;
        GroupNorm norm_out;
    } encoder;
    struct {
        Conv post_quant_conv, conv_in, conv_out;
        Mid mid;
        std::array<Level, VaeSizes::kLevels> up;
        GroupNorm norm_out;
    } decoder;
};

namespace {

// ---- Weights ----

GroupNorm load_norm(Weights& w, const std::string& name) {
    return {.weight = w.vector(name + ".weight"), .bias = w.vector(name + ".bias")};
}

Resnet load_resnet(Weights& w, const std::string& name, bool widens = false) {
    return {.norm1 = load_norm(w, name + ".norm1"),
            .norm2 = load_norm(w, name + ".norm2"),
            .conv1 = load_conv(w, name + ".conv1"),
            .conv2 = load_conv(w, name + ".conv2"),
            .shortcut = widens ? load_conv(w, name + ".nin_shortcut") : Conv{}};
}

Mid load_mid(Weights& w, const std::string& name) {
    const std::string attn = name + ".attn_1";
    return {.block_1 = load_resnet(w, name + ".block_1"),
            .block_2 = load_resnet(w, name + ".block_2"),
            .attn_1 = {.norm = load_norm(w, attn + ".norm"),
                       .q = load_conv(w, attn + ".q"),
                       .k = load_conv(w, attn + ".k"),
                       .v = load_conv(w, attn + ".v"),
                       .proj_out = load_conv(w, attn + ".proj_out")}};
}

void load_encoder(Weights& w, const VaeSizes& s, VaeNetwork& n) {
    auto& e = n.encoder;
    int64_t width = s.encoder_widths[0];
    e.conv_in = load_conv(w, "encoder.conv_in");
    for (size_t level = 0; level < e.down.size(); ++level) {
        const std::string name = "encoder.down." + std::to_string(level);
        for (const char* block : {".block.0", ".block.1"}) {
            const int64_t next = s.encoder_widths[level];
            e.down[level].blocks.push_back(load_resnet(w, name + block, next != width));
            width = next;
        }
        if (level + 1 < e.down.size()) {
            e.down[level].resample = load_conv(w, name + ".downsample.conv");
        }
    }
    e.mid = load_mid(w, "encoder.mid");
    e.norm_out = load_norm(w, "encoder.norm_out");
    e.conv_out = load_conv(w, "encoder.conv_out");
    e.quant_conv = load_conv(w, "encoder.quant_conv");
}

void load_decoder(Weights& w, const VaeSizes& s, VaeNetwork& n) {
    auto& d = n.decoder;
    int64_t width = s.decoder_widths.back();
    d.post_quant_conv = load_conv(w, "decoder.post_quant_conv");
    d.conv_in = load_conv(w, "decoder.conv_in");
    d.mid = load_mid(w, "decoder.mid");
    for (size_t level = d.up.size(); level-- > 0;) {
        const std::string name = "decoder.up." + std::to_string(level);
        for (const char* block : {".block.0", ".block.1", ".block.2"}) {
            const int64_t next = s.decoder_widths[level];
            d.up[level].blocks.push_back(load_resnet(w, name + block, next != width));
            width = next;
        }
        if (level > 0) {
            d.up[level].resample = load_conv(w, name + ".upsample.conv");
        }
    }
    d.norm_out = load_norm(w, "decoder.norm_out");
    d.conv_out = load_conv(w, "decoder.conv_out");
}

// ---- Graph ----

FeatureMap resnet(Graph& g, const Resnet& w, const FeatureMap& x) {
    const bool widens = w.shortcut.weight != nullptr;
    FeatureMap skip = x;
    if (widens) {
        skip = conv(g, w.shortcut, x);
        // Nobody needs x afterwards, so the norm may overwrite it: this is where memory peaks.
        g.expand(skip.tensor);
    }
    FeatureMap h = conv_of_norm(g, w.conv1, w.norm1, x, {.overwrites_x = widens});
    h = conv_of_norm(g, w.conv2, w.norm2, h, {.skip = skip});
    g.end_block({h.tensor});
    return h;
}

// The result takes the place of x, or of what lies between the convolutions, if it can.
BandedMap resnet(Graph& g, const Resnet& w, const BandedMap& x, MapMemory memory) {
    const bool widens = w.shortcut.weight != nullptr;
    BandedMap hidden = conv(g, w.conv1, group_norm_silu(g, w.norm1, x));
    if (memory != MapMemory::all_in_bands) {
        hidden = kept(g, hidden);
    }
    BandedMap result = x.is_kept() && !widens ? x
                       : hidden.is_kept()     ? hidden
                                              : BandedMap(g, hidden.size());
    const BandedMap skip = widens ? conv(g, w.shortcut, x) : x;
    replace(g, result, group_norm_silu(g, w.norm2, hidden), /*around=*/1,
            [&](const FeatureMap& h, const Rows& rows) {
                return conv_add(g, w.conv2, h, skip.rows(rows), result.precision());
            });
    return result;
}

// The result is computed again wherever its rows are asked for.
BandedMap resnet_again(Graph& g, const Resnet& w, const BandedMap& x) {
    constexpr int64_t kReach = 2;  // rows that both convolutions together read above and below
    const Moments of_x = moments(g, x);
    const Moments of_hidden = moments(g, conv(g, w.conv1, group_norm_silu(g, w.norm1, x, of_x)));
    const MapSize size = {w.conv1.weight->ne[3], x.size().w, x.size().h};
    return {g, size, [=, &g](const Rows& rows, MapPrecision precision) {
                const FeatureMap part = x.rows_around(rows, kReach);
                const bool widens = w.shortcut.weight != nullptr;
                const FeatureMap skip = widens ? conv(g, w.shortcut, part) : part;
                const FeatureMap h = conv(g, w.conv1, group_norm_silu(g, w.norm1, part, of_x));
                const FeatureMap y = conv_add(g, w.conv2, group_norm_silu(g, w.norm2, h, of_hidden),
                                              skip, precision);
                return x.without_around(y, rows, kReach);
            }};
}

FeatureMap attention_block(Graph& g, const Attention& w, const FeatureMap& x) {
    const FeatureMap y = group_norm(g, w.norm, x);
    const FeatureMap o = pixel_attention(g, conv(g, w.q, y), conv(g, w.k, y), conv(g, w.v, y));
    return conv_add(g, w.proj_out, o, x);
}

FeatureMap mid(Graph& g, const Mid& w, FeatureMap x) {
    x = resnet(g, w.block_1, x);
    x = attention_block(g, w.attn_1, x);
    return resnet(g, w.block_2, x);
}

// The network over maps that are whole or, where they are larger than a band, computed in bands.
class Layers {
  public:
    Layers(Graph& g, MapMemory memory) : g_(g), memory_(memory) {}

    // Not kept in bands.
    BandedMap first(const Conv& w, const FeatureMap& x) const {
        return in_bands(n_out(w), size_of(x).w, size_of(x).h) ? conv(g_, w, BandedMap(g_, x))
                                                              : BandedMap(g_, conv(g_, w, x));
    }

    BandedMap block(const Resnet& w, const BandedMap& x) const {
        const int64_t widest = std::max(x.size().channels, n_out(w.conv1));
        return in_bands(widest, x.size().w, x.size().h)
                   ? resnet(g_, w, x, memory_)
                   : BandedMap(g_, resnet(g_, w, kept(g_, x).whole()));
    }

    // The same, but not kept in bands.
    BandedMap block_again(const Resnet& w, const BandedMap& x) const {
        return x.is_kept() ? block(w, x) : resnet_again(g_, w, x);
    }

    BandedMap up(const Conv& w, const BandedMap& x) const {
        if (!in_bands(n_out(w), 2 * x.size().w, 2 * x.size().h)) {
            return {g_, conv_up(g_, w, x.whole())};
        }
        const BandedMap y = conv_up(g_, w, x);
        return memory_ == MapMemory::bands ? kept(g_, y) : y;
    }

    BandedMap down(const Conv& w, const BandedMap& x) const {
        if (!in_bands(x.size().channels, x.size().w, x.size().h)) {
            return {g_, conv_down(g_, w, x.whole())};
        }
        const BandedMap y = conv_down(g_, w, x);
        BandedMap result(g_, y.size());
        for (const Rows& rows : bands_of(g_, x.size())) {
            const Rows half = {rows.first / 2, rows.n / 2};
            result.put(y.rows(half, MapPrecision::compact), half);
        }
        return result;
    }

    // In F32.
    FeatureMap last(const GroupNorm& norm, const Conv& w, const BandedMap& x) const {
        if (!in_bands(x.size().channels, x.size().w, x.size().h)) {
            return conv_of_norm(g_, w, norm, x.whole());
        }
        const BandedMap y = conv(g_, w, group_norm_silu(g_, norm, x));
        BandedMap result(g_, y.size());
        for (const Rows& rows : bands_of(g_, x.size())) {
            result.put(y.rows(rows), rows);
        }
        return result.whole();
    }

  private:
    static int64_t n_out(const Conv& w) { return w.weight->ne[3]; }

    bool in_bands(int64_t channels, int64_t w, int64_t h) const {
        return is_large(g_, {channels, w, h});
    }

    Graph& g_;
    MapMemory memory_;
};

// pixels [w, h, 3] -> the means [w/8, h/8, latent channels]
ggml_tensor* encoder(Graph& g, const VaeNetwork& n, MapMemory memory, ggml_tensor* pixels) {
    const auto& e = n.encoder;
    const Layers layers(g, memory);
    BandedMap x = layers.first(e.conv_in, from_planes(g, pixels));
    for (const Level& level : e.down) {
        // In bands no map of the first level is kept: they are the largest, and what they are
        // computed from are few channels and few convolutions.
        const bool is_first = &level == &e.down.front();
        for (const Resnet& block : level.blocks) {
            x = is_first ? layers.block_again(block, x) : layers.block(block, x);
        }
        if (level.resample.weight != nullptr) {
            x = layers.down(level.resample, x);
        }
    }
    const FeatureMap y = mid(g, e.mid, x.whole());
    FeatureMap means = conv_of_norm(g, e.conv_out, e.norm_out, y);
    means = conv(g, e.quant_conv, means);
    // The first half of the channels is the mean, the second the logarithm of the variance.
    ggml_tensor* both = to_planes(g, means);
    return ggml_cont(g, ggml_view_3d(g, both, both->ne[0], both->ne[1], both->ne[2] / 2,
                                     both->nb[1], both->nb[2], 0));
}

// latents [w/8, h/8, latent channels] -> [w, h, 3]
ggml_tensor* decoder(Graph& g, const VaeNetwork& n, MapMemory memory, ggml_tensor* latents) {
    const auto& d = n.decoder;
    const Layers layers(g, memory);
    const FeatureMap y = conv(g, d.post_quant_conv, from_planes(g, latents));
    BandedMap x(g, mid(g, d.mid, conv(g, d.conv_in, y)));
    for (size_t level = d.up.size(); level-- > 0;) {
        for (const Resnet& block : d.up[level].blocks) {
            x = layers.block(block, x);
        }
        if (d.up[level].resample.weight != nullptr) {
            x = layers.up(d.up[level].resample, x);
        }
    }
    return to_planes(g, layers.last(d.norm_out, d.conv_out, x));
}

constexpr int64_t kNormGroups = 32;
constexpr int64_t kMostCudaChannels = 1024;  // of group norm in the CUDA form

// Throws bad_file when the channels of a level do not divide into the groups of its norms; any
// whole number of channels in a group will do.
int64_t widest_level(const VaeSizes& sizes, const std::string& file) {
    int64_t widest = 0;
    for (const auto& widths : {sizes.encoder_widths, sizes.decoder_widths}) {
        for (const int64_t width : widths) {
            check(width % kNormGroups == 0, ErrorKind::bad_file, file, ": has ", width,
                  " channels at one level, which do not divide into ", kNormGroups,
                  " groups; the file is broken or of another model");
            widest = std::max(widest, width);
        }
    }
    return widest;
}

}  // namespace

Vae::Vae(const Backend& backend, const VaeSizes& sizes, const Checkpoint& checkpoint,
         const WeightOptions& options)
    : Autoencoder(
          backend, checkpoint, tensor_list(sizes), options,
          {.part = Part::vae, .latent_channels = sizes.latent_channels, .has_encoder = true}),
      sizes_(sizes),
      network_(std::make_unique<VaeNetwork>()) {
    mean_ = weights().read("bn.running_mean");
    deviation_ = weights().read("bn.running_var");
    for (float& value : deviation_.data) {
        value = std::sqrt(value + kBatchNormEps);
    }
    load_encoder(weights(), sizes_, *network_);
    load_decoder(weights(), sizes_, *network_);
    load(/*suits_cuda=*/widest_level(sizes_, weights().file()) <= kMostCudaChannels);
}

Vae::~Vae() = default;

size_t Vae::max_nodes(int64_t w, int64_t h) const {
    constexpr int64_t kSlicesMargin = 64;
    constexpr int64_t kSlicePixels = 1024 * 8 * 8;  // of a slice of attention
    int64_t nodes = 2048 + 8 * (w * h / kSlicePixels + kSlicesMargin);
    if (band_values() > 0) {
        constexpr int64_t kNodesOfBand = 96;  // blocks go over it three or four times
        const int64_t widest = widest_level(sizes_, weights().file());
        nodes += kNodesOfBand * (w * h * widest / band_values() + kSlicesMargin);
    }
    return static_cast<size_t>(nodes);
}

ggml_tensor* Vae::encode_graph(Graph& g, ggml_tensor* pixels) const {
    return encoder(g, *network_, map_memory(), pixels);
}

ggml_tensor* Vae::decode_graph(Graph& g, ggml_tensor* latents) const {
    return decoder(g, *network_, map_memory(), latents);
}

void Vae::normalise(HostTensor& latents) const {
    const auto n = static_cast<size_t>(latents.ne[0] * latents.ne[1]);
    for (size_t i = 0; i < latents.data.size(); ++i) {
        latents.data[i] = (latents.data[i] - mean_.data[i / n]) / deviation_.data[i / n];
    }
}

void Vae::denormalise(HostTensor& latents) const {
    const auto n = static_cast<size_t>(latents.ne[0] * latents.ne[1]);
    for (size_t i = 0; i < latents.data.size(); ++i) {
        latents.data[i] = latents.data[i] * deviation_.data[i / n] + mean_.data[i / n];
    }
}

}  // namespace flux2
