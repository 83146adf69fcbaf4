// Pictures as latents: from memory, from the cache on disk, or from the autoencoder.
#pragma once

#include <flux2/image.hpp>
#include "base/host_tensor.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/tensor_cache.hpp"

#include <cstddef>
#include <deque>
#include <string>

namespace flux2 {

struct EncodedImage {
    SharedTensor latents;     // [width / 16, height / 16, channels]
    bool was_cached = false;  // the autoencoder was not used
};

// Pictures are found by their size and a hash of their pixels, together with everything else that
// their latents depend on, to the last bit: files of the autoencoder, where and how it computes.
// Borrows everything it is given.
class EncodedImages {
  public:
    static constexpr size_t kMaxHeld = size_t{64} << 20;  // thirty pictures of a megapixel

    // max_held: how many bytes of latents are held in memory. Those that were not used for the
    // longest time are dropped first.
    EncodedImages(const Model& model, LoadedModel& loaded_model, const TensorCache& cache,
                  size_t max_held = kMaxHeld);

    // Of a picture that is fitted, its sides multiples of 16. Loads the autoencoder only to encode.
    EncodedImage get(const Image& image);
    size_t held_bytes() const { return held_bytes_; }

  private:
    struct Entry {
        std::string key;
        SharedTensor latents;
    };

    std::string key_of(const std::string& pixels);
    SharedTensor find_held(const std::string& key);
    SharedTensor hold(const std::string& key, HostTensor latents);

    const Model& model_;
    LoadedModel& loaded_model_;
    const TensorCache& cache_;
    const size_t max_held_;
    const TensorSource& source_;  // of the autoencoder
    std::deque<Entry> entries_;   // the last used last
    size_t held_bytes_ = 0;
};

}  // namespace flux2
