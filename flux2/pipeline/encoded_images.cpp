#include "pipeline/encoded_images.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "image/image.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

namespace flux2 {
namespace {

std::string identity_of_pixels(const Image& image) {
    return concat(image.width, "x", image.height, " ",
                  WideHash().add(std::as_bytes(std::span(image.rgb))).hex());
}

size_t bytes_of(const HostTensor& latents) {
    return latents.data.size() * sizeof(float);
}

}  // namespace

EncodedImages::EncodedImages(const Model& model, LoadedModel& loaded_model,
                             const TensorCache& cache, size_t max_held)
    : model_(model),
      loaded_model_(loaded_model),
      cache_(cache),
      max_held_(max_held),
      source_((model.vae ? *model.vae : *model.tiny).source()) {}

// By an autoencoder as it is placed now. Its weights are never repacked, so they have one layout.
std::string EncodedImages::key_of(const std::string& pixels) {
    const Part part = encoding_part(model_);
    return concat("picture encoded by flux2 ", version(), "\n", to_string(part), "\n",
                  identity(source_), loaded_model_.compute_facts(part), "maps ",
                  static_cast<int>(loaded_model_.map_memories().encode), "\npixels ", pixels);
}

SharedTensor EncodedImages::find_held(const std::string& key) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) {
        return nullptr;
    }
    std::rotate(found, found + 1, entries_.end());
    return entries_.back().latents;
}

SharedTensor EncodedImages::hold(const std::string& key, HostTensor latents) {
    const SharedTensor shared = share(std::move(latents));
    entries_.push_back({key, shared});
    held_bytes_ += bytes_of(*shared);
    while (held_bytes_ > max_held_) {
        held_bytes_ -= bytes_of(*entries_.front().latents);
        entries_.pop_front();
    }
    return shared;
}

EncodedImage EncodedImages::get(const Image& image) {
    const std::string pixels = identity_of_pixels(image);
    const std::string key = key_of(pixels);
    if (SharedTensor held = find_held(key)) {
        return {std::move(held), true};
    }
    const std::array<int64_t, 4> ne = {image.width / kImageGrid, image.height / kImageGrid,
                                       model_.sizes.channels, 1};
    if (std::optional<CachedTensor> cached = cache_.find(key, ne)) {
        return {hold(key, std::move(cached->value)), true};
    }
    HostTensor latents = loaded_model_.run(encoding_part(model_),
                                           [&] { return loaded_model_.encode(to_planes(image)); });
    // As it was encoded: where memory was short, at another place or some rows at a time.
    const std::string used_key = key_of(pixels);
    cache_.store_result_of(source_, used_key, latents);
    return {hold(used_key, std::move(latents)), false};
}

}  // namespace flux2
