// One denoising step of a picture: the transformer's passes, guidance, and references.
#pragma once

#include "base/host_tensor.hpp"
#include "models/transformer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace flux2 {

// How a model is to be run; facts of its file.
struct DenoiseOptions {
    float guidance = 1.0f;
    bool kv_references = false;  // the KV variant: references are computed once
};

// What does not change between the steps of one picture.
struct Conditioning {
    HostTensor txt;                          // features [text_width, n_txt]
    std::optional<HostTensor> negative_txt;  // for guidance by two passes
    std::vector<HostTensor> references;      // encoded pictures [w, h, channels]
};

// Runs the transformer for the steps of one picture; borrows it.
class Denoiser {
  public:
    // w and h: the size of the latents.
    Denoiser(Transformer& transformer, Conditioning conditioning, int64_t w, int64_t h,
             const DenoiseOptions& options);

    // The velocity of tokens x [channels, w * h]. Steps must come in order from 0 on.
    HostTensor velocity(const HostTensor& x, float sigma, size_t step);

  private:
    Transformer& transformer_;
    DenoiseOptions options_;
    std::shared_ptr<const HostTensor> negative_txt_;  // null without
    TransformerInput input_;
};

}  // namespace flux2
