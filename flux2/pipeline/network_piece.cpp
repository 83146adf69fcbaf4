#include "pipeline/network_piece.hpp"

#include "base/host_tensor.hpp"
#include "base/image_limits.hpp"
#include "compute/graph.hpp"
#include "compute/ops/feature_map_ops.hpp"
#include "compute/ops/token_ops.hpp"
#include "image/image.hpp"
#include "pipeline/latents.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

constexpr int64_t kTextTokens = 512;  // of a prompt
constexpr size_t kAttentionNodes = 4096;

// Values in -1..1 that do not repeat soon: with zeros a GPU would be faster than with real ones.
HostTensor varied_values(const std::array<int64_t, 4>& ne) {
    HostTensor tensor(ne);
    uint32_t state = 1;
    for (float& value : tensor.data) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
    }
    return tensor;
}

// Computes what `build` makes of three inputs of this shape: queries, keys, values.
template <typename Build>
NetworkPiece::Run attention_run(const Backend& backend, const Form& form,
                                const std::array<int64_t, 3>& ne, const Build& build) {
    const auto graph = std::make_shared<Graph>(backend, kAttentionNodes, form);
    std::vector<ggml_tensor*> inputs;
    for (const char* name : {"q", "k", "v"}) {
        inputs.push_back(graph->input_f32(name, {ne[0], ne[1], ne[2]}));
    }
    graph->finish(build(*graph, inputs));
    const HostTensor values = varied_values({ne[0], ne[1], ne[2], 1});
    for (ggml_tensor* input : inputs) {
        graph->set(input, values.data);
    }
    return [graph] { graph->compute(); };
}

ggml_tensor* attention_of_heads(Graph& g, const std::vector<ggml_tensor*>& inputs) {
    const auto heads = [&](ggml_tensor* x) {
        const HeadsPart part = {.x = x, .norm = nullptr};
        return join_heads(g, std::span(&part, 1), nullptr);
    };
    return attention(g, {.q = heads(inputs[0]), .k = heads(inputs[1]), .v = heads(inputs[2])});
}

ggml_tensor* attention_of_pixels(Graph& g, const std::vector<ggml_tensor*>& inputs) {
    const auto map = [&](size_t i) { return from_planes(g, inputs[i]); };
    return to_planes(g, pixel_attention(g, map(0), map(1), map(2)));
}

TransformerInput transformer_input(const TransformerSizes& sizes, int64_t n_tokens) {
    const int64_t n_txt = std::min(kTextTokens, n_tokens / 2);
    const int64_t n_img = n_tokens - n_txt;
    TransformerInput input;
    input.img = varied_values({sizes.channels, n_img, 1, 1});
    input.txt = share(varied_values({sizes.text_width, n_txt, 1, 1}));
    input.img_pos = image_positions(n_img, 1);
    input.txt_pos = text_positions(n_txt);
    input.timestep = 0.5f;
    input.guidance = 1.0f;
    return input;
}

NetworkPiece transformer_piece(const Backend& backend, const Model& model,
                               const WeightOptions& options) {
    TransformerSizes sizes = model.sizes;
    sizes.n_double = std::min<int64_t>(sizes.n_double, 1);
    sizes.n_single = std::min<int64_t>(sizes.n_single, 1);
    const auto network = std::make_shared<Transformer>(backend, sizes, model.transformer, options);
    // Only the blocks are timed, since what is copied to and from the device does not grow with
    // their number.
    const auto run_at = [network, sizes](int64_t n_tokens) {
        network->predict(transformer_input(sizes, n_tokens));
        return [network] { network->graph()->compute(); };
    };
    const auto attention_at = [network, sizes, &backend](int64_t n_tokens) {
        if (network->graph() == nullptr) {
            network->reserve({.mode = ReferenceMode::joint, .n_img = 16, .n_ref = 0, .n_txt = 16});
        }
        return attention_run(backend, network->graph()->form(),
                             {sizes.head_dim, sizes.hidden / sizes.head_dim, n_tokens},
                             attention_of_heads);
    };
    return {run_at, attention_at};
}

NetworkPiece text_encoder_piece(const Backend& backend, const Model& model,
                                const WeightOptions& options) {
    const TextEncoderSizes sizes = read_text_encoder_sizes(*model.text_encoder);
    TextEncoderFacts facts = text_encoder_facts(model.text);
    facts.layers = {1};
    const auto network =
        std::make_shared<TextEncoder>(backend, sizes, facts, *model.text_encoder, options);
    const auto run_at = [network, sizes](int64_t n_tokens) {
        std::vector<int32_t> ids(static_cast<size_t>(n_tokens));
        for (size_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<int32_t>(static_cast<int64_t>(i) % sizes.vocabulary);
        }
        network->encode(ids, n_tokens);
        return [network] { network->graph()->compute(); };
    };
    return {run_at, {}};
}

NetworkPiece autoencoder_piece(const Backend& backend, const Model& model, Part part,
                               const WeightOptions& options) {
    const std::shared_ptr<Autoencoder> network = make_autoencoder(backend, model, part, options);
    const auto side_of = [](int64_t n_pixels) {
        return std::llround(std::sqrt(static_cast<double>(n_pixels)));
    };
    NetworkPiece piece;
    piece.network = [network, side_of](int64_t n_pixels) {
        const int64_t side = side_of(n_pixels) / kImageGrid;
        const auto latents = std::make_shared<const HostTensor>(
            varied_values({side, side, 4 * network->latent_channels(), 1}));
        return [network, latents] { from_planes(network->decode(*latents)); };
    };
    if (has_attention_piece(part)) {
        const int64_t width = read_vae_sizes(*model.vae).decoder_widths.back();
        piece.attention = [network, side_of, width, &backend](int64_t n_pixels) {
            constexpr int64_t kPixelsOfFeature = 8;
            if (network->graph() == nullptr) {
                network->reserve_decode(kMinSide, kMinSide);
            }
            const int64_t side = side_of(n_pixels) / kPixelsOfFeature;
            return attention_run(backend, network->graph()->form(), {side, side, width},
                                 attention_of_pixels);
        };
    }
    return piece;
}

}  // namespace

NetworkPiece make_piece(const Backend& backend, const Model& model, const LoadOptions& options,
                        Part part, Placement placement) {
    const WeightOptions weights = weight_options(options, part, placement);
    switch (part) {
        case Part::transformer:
            return transformer_piece(backend, model, weights);
        case Part::text_encoder:
            return text_encoder_piece(backend, model, weights);
        case Part::vae:
        case Part::tiny_autoencoder:
            return autoencoder_piece(backend, model, part, weights);
    }
    return {};
}

}  // namespace flux2
