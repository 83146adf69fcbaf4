// The denoising steps of one picture: the transformer's passes, guidance, and references.
#pragma once

#include "base/host_tensor.hpp"
#include "models/transformer.hpp"

#include <cstdint>
#include <vector>

namespace flux2 {

// How a model is to be run; facts of its file.
struct DenoiseOptions {
    float guidance = 1.0f;
    bool kv_references = false;  // the KV variant: references are computed once
};

// Inputs that are the same in all steps of one picture.
struct Conditioning {
    SharedTensor txt;                    // features [text_width, n_txt]
    SharedTensor negative_txt;           // for guidance by two passes; null without
    std::vector<HostTensor> references;  // encoded pictures [w, h, channels]
};

// Runs the transformer for the steps of one picture; borrows it.
class Denoiser {
  public:
    // w and h: the size of the latents.
    Denoiser(Transformer& transformer, const Conditioning& conditioning, int64_t w, int64_t h,
             const DenoiseOptions& options);

    // The velocity of tokens x [channels, w * h]. Steps must come in order from 0 on.
    HostTensor velocity(const HostTensor& x, float sigma, size_t step);

  private:
    Transformer& transformer_;
    DenoiseOptions options_;
    SharedTensor negative_txt_;
    TransformerInput input_;
};

}  // namespace flux2
