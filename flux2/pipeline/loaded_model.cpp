#include "pipeline/loaded_model.hpp"

#include "base/system.hpp"
#include "formats/tensor_type.hpp"
#include "models/tiny_autoencoder.hpp"
#include "models/vae.hpp"

#include <chrono>
#include <utility>

namespace flux2 {

WeightOptions weight_options(const LoadOptions& options, Part part, Placement placement,
                             std::shared_ptr<const AdapterSet> adapters) {
    WeightOptions weights;
    if (const std::string& type = chosen_type(options, part); !type.empty()) {
        weights.type = parse_matrix_type(type);
    }
    weights.stream_blocks = placement == Placement::streamed;
    weights.unpack = placement == Placement::unpacked;
    weights.repack = options.repack;
    weights.adapters = std::move(adapters);
    return weights;
}

TextEncoderFacts text_encoder_facts(const TextConfig& text) {
    return {.layers = text.layers,
            .rope_theta = static_cast<float>(text.rope_theta),
            .eps = static_cast<float>(text.eps)};
}

std::unique_ptr<Autoencoder> make_autoencoder(const Backend& backend, const Model& model, Part part,
                                              const WeightOptions& options) {
    if (part == Part::tiny_autoencoder) {
        return std::make_unique<TinyAutoencoder>(backend, read_tiny_autoencoder_sizes(*model.tiny),
                                                 *model.tiny, options);
    }
    return std::make_unique<Vae>(backend, read_vae_sizes(*model.vae), *model.vae, options);
}

Part encoding_part(const Model& model) {
    return model.vae ? Part::vae : Part::tiny_autoencoder;
}

Part decoding_part(const Model& model) {
    return model.tiny_decodes ? Part::tiny_autoencoder : Part::vae;
}

LoadedModel::LoadedModel(const Model& model, const LoadOptions& options)
    : model_(model),
      options_(options),
      keeps_loaded_(options.keep_loaded),
      backends_(std::in_place, options),
      device_names_({backends_->of(Part::transformer).name()}),
      device_(&device_names_.back()) {}

void LoadedModel::restart() {
    free_all();
    placement_.fill(Placement::device);
    map_memories_ = {};
    backends_.reset();  // devices are closed before they are opened again
    backends_.emplace(options_);
    device_names_.push_back(backends_->of(Part::transformer).name());
    device_ = &device_names_.back();
}

void LoadedModel::set_placement(Part part, Placement placement) {
    if (placement_[index(part)] != placement) {
        free(part);
        placement_[index(part)] = placement;
    }
}

void LoadedModel::set_adapters(const AdapterSets& adapters) {
    adapters_ = adapters;
    take_off_others(Part::transformer, transformer_.get(), adapters.transformer);
    take_off_others(Part::text_encoder, text_encoder_.get(), adapters.text_encoder);
}

template <typename Network>
void LoadedModel::take_off_others(Part part, Network* network,
                                  const std::shared_ptr<const AdapterSet>& adapters) {
    if (network != nullptr && identity_of(network->adapters()) != identity_of(adapters) &&
        !(network->can_set_adapters(adapters) && network->try_set_adapters(nullptr))) {
        free(part);
    }
}

// Frees the network where that takes loading it again.
template <typename Network>
void LoadedModel::put_on(Part part, Network* network,
                         const std::shared_ptr<const AdapterSet>& adapters) {
    free_others(part);
    if (network != nullptr && identity_of(network->adapters()) != identity_of(adapters) &&
        !network->try_set_adapters(adapters)) {
        free(part);
    }
}

Backend& LoadedModel::backend(Part part) {
    return placement(part) == Placement::cpu ? backends_->cpu() : backends_->of(part);
}

bool LoadedModel::is_loaded(Part part) const {
    switch (part) {
        case Part::text_encoder:
            return text_encoder_ != nullptr;
        case Part::transformer:
            return transformer_ != nullptr;
        case Part::vae:
            return vae_ != nullptr;
        case Part::tiny_autoencoder:
            return tiny_ != nullptr;
    }
    return false;
}

// Does nothing when all are kept.
void LoadedModel::free_others(Part part) {
    for (const Part other : kAllParts) {
        if (other != part && other != Part::tiny_autoencoder && !keeps_loaded_) {
            free(other);
        }
    }
}

template <typename Make>
void LoadedModel::load(Part part, const Make& make) {
    if (part != Part::tiny_autoencoder) {
        free_others(part);
    }
    if (is_loaded(part)) {
        return;
    }
    if (on_load_) {
        on_load_(part);
    }
    const auto start = std::chrono::steady_clock::now();
    const auto adapters = part == Part::transformer    ? adapters_.transformer
                          : part == Part::text_encoder ? adapters_.text_encoder
                                                       : nullptr;
    make(backend(part), weight_options(options_, part, placement(part), adapters));
    return_unused_memory();  // what was used to convert weights
    load_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TextEncoder& LoadedModel::text_encoder() {
    put_on(Part::text_encoder, text_encoder_.get(), adapters_.text_encoder);
    load(Part::text_encoder, [&](const Backend& backend, const WeightOptions& weights) {
        text_encoder_ = std::make_unique<TextEncoder>(
            backend, read_text_encoder_sizes(*model_.text_encoder), text_encoder_facts(model_.text),
            *model_.text_encoder, weights);
    });
    return *text_encoder_;
}

Transformer& LoadedModel::transformer() {
    put_on(Part::transformer, transformer_.get(), adapters_.transformer);
    load(Part::transformer, [&](const Backend& backend, const WeightOptions& weights) {
        const std::vector<BlockShare> shares = placement(Part::transformer) == Placement::cpu
                                                   ? std::vector<BlockShare>{{&backend, 1}}
                                                   : backends_->of_blocks();
        transformer_ =
            std::make_unique<Transformer>(shares, model_.sizes, model_.transformer, weights);
    });
    return *transformer_;
}

Autoencoder& LoadedModel::autoencoder(Part part) {
    auto& network = part == Part::tiny_autoencoder ? tiny_ : vae_;
    load(part, [&](const Backend& backend, const WeightOptions& weights) {
        network = make_autoencoder(backend, model_, part, weights);
    });
    return *network;
}

HostTensor LoadedModel::encode(const HostTensor& pixels) {
    const Part part = encoding_part(model_);
    free_others(part);
    Autoencoder& network = autoencoder(part);
    network.set_map_memory(map_memories_.encode);
    return network.encode(pixels);
}

HostTensor LoadedModel::decode(const HostTensor& latents) {
    const Part part = decoding_part(model_);
    free_others(part);
    Autoencoder& network = autoencoder(part);
    network.set_map_memory(map_memories_.decode);
    return network.decode(latents);
}

HostTensor LoadedModel::decode_preview(const HostTensor& latents) {
    Autoencoder& network = autoencoder(Part::tiny_autoencoder);
    network.set_map_memory(map_memories_.preview);
    return network.decode(latents);
}

std::string LoadedModel::compute_facts(Part part) {
    const Backend& used = backend(part);
    return concat("on ", used.name(), " ", used.description(), "\noperations ",
                  static_cast<int>(used.operations()), "\ntype ", chosen_type(options_, part),
                  "\nplacement ", static_cast<int>(placement(part)), "\n");
}

std::string LoadedModel::text_encoder_layout() {
    if (text_encoder_) {
        return text_encoder_->weight_layout();
    }
    if (!backend(Part::text_encoder).is_cpu()) {
        return "";  // only a CPU has a choice
    }
    const Backend measuring("CPU", options_.threads, BackendUse::measure);
    return TextEncoder(measuring, read_text_encoder_sizes(*model_.text_encoder),
                       text_encoder_facts(model_.text), *model_.text_encoder,
                       weight_options(options_, Part::text_encoder, placement(Part::text_encoder),
                                      adapters_.text_encoder))
        .weight_layout();
}

MemoryUse LoadedModel::memory() const {
    MemoryUse use;
    const auto add = [&](const auto& model) {
        if (model) {
            use += model->weight_memory().own;
            use += model->compute_memory();
        }
    };
    add(text_encoder_);
    add(transformer_);
    add(vae_);
    add(tiny_);
    return use;
}

uint64_t LoadedModel::device_bytes(const Backend& device) {
    uint64_t bytes = 0;
    const auto add = [&](Part part, const auto& model) {
        if (model && &backend(part) == &device) {
            bytes += model->weight_memory().own.device + model->compute_memory().device;
        }
    };
    add(Part::text_encoder, text_encoder_);
    add(Part::vae, vae_);
    add(Part::tiny_autoencoder, tiny_);
    for (const BlockRange& range :
         transformer_ ? transformer_->block_ranges() : std::vector<BlockRange>()) {
        if (range.backend == &device) {
            bytes += range.weights.device + range.compute.device;
        }
    }
    return bytes;
}

void LoadedModel::free(Part part) {
    switch (part) {
        case Part::text_encoder:
            text_encoder_.reset();
            break;
        case Part::transformer:
            transformer_.reset();
            break;
        case Part::vae:
            vae_.reset();
            break;
        case Part::tiny_autoencoder:
            tiny_.reset();
            break;
    }
}

void LoadedModel::free_all() {
    for (const Part part : kAllParts) {
        free(part);
    }
}

// Returns a description of the new placement, for a message.
std::string LoadedModel::take_smaller_placement(Part part) {
    if (placement(part) == Placement::unpacked) {
        set_placement(part, Placement::device);
        return "its weights stay quantised";
    }
    const bool is_split = part == Part::transformer && backends_->splits_transformer();
    const bool streams = !is_split && placement(part) == Placement::device &&
                         facts_of(part).has_blocks &&
                         device(part).device().abilities().streams_blocks;
    set_placement(part, streams ? Placement::streamed : Placement::cpu);
    return streams ? "its blocks are streamed from RAM" : "it runs on the CPU";
}

// Returns whether there was something left to save.
bool LoadedModel::take_smaller_maps(Part part) {
    const bool is_autoencoder = part == Part::vae || part == Part::tiny_autoencoder;
    const MapMemory smallest = kAllMapMemory.back();
    const MapMemories all_small = {smallest, smallest, smallest};
    if (!is_autoencoder || map_memories_ == all_small ||
        backend(part).operations() == Operations::stock) {
        return false;
    }
    map_memories_ = all_small;
    return true;
}

bool LoadedModel::make_room(Part part, const std::string& reason) {
    bool others = false;
    for (const Part other : kAllParts) {
        others = others || (other != part && other != Part::tiny_autoencoder && is_loaded(other));
    }
    free_all();
    std::string next = "the other parts are freed first";
    if (!others && take_smaller_maps(part)) {
        next = "it computes some rows at a time";
    } else if (!others) {
        if (backend(part).is_cpu()) {
            return false;
        }
        next = take_smaller_placement(part);
    }
    log(LogLevel::warning,
        concat("not enough memory for the ", to_string(part), " (", reason, "): ", next));
    return true;
}

}  // namespace flux2
