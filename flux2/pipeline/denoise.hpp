// The denoising steps of pictures: the transformer's passes, guidance, and references.
#pragma once

#include "base/host_tensor.hpp"
#include "models/transformer.hpp"
#include "pipeline/sampler.hpp"

#include <cstdint>
#include <vector>

namespace flux2 {

// How a model is to be run.
struct DenoiseOptions {
    float guidance = 1.0f;       // for models with a guidance input
    float cfg_scale = 1.0f;      // of guidance by two passes; at most 1: one pass
    StepRange guided_steps{};    // those that have two passes
    bool one_pass = false;       // both are computed as one
    bool kv_references = false;  // the KV variant: references are computed once
};

// Inputs that are the same in all steps and for all pictures of one pass.
struct Conditioning {
    SharedTensor txt;                    // features [text_width, n_txt]
    SharedTensor negative_txt;           // for guidance by two passes; null without
    std::vector<HostTensor> references;  // encoded pictures [w, h, channels]
};

// Picture i of tokens x [channels, n, n_pictures], and pictures one after the other.
HostTensor picture_of(const HostTensor& x, int64_t i);
HostTensor join_pictures(const std::vector<HostTensor>& pictures);

// Runs the transformer for the steps of pictures; borrows it.
class Denoiser {
  public:
    // w and h: the size of the latents.
    Denoiser(Transformer& transformer, const Conditioning& conditioning, int64_t w, int64_t h,
             const DenoiseOptions& options);

    // The velocity of tokens x [channels, w * h, n_pictures]. Steps must come in order from 0 on.
    HostTensor velocity(const HostTensor& x, float sigma, size_t step);

  private:
    ReferenceMode reference_mode(size_t step) const;
    HostTensor keep_references(const HostTensor& x);
    HostTensor with_text(const SharedTensor& txt, const HostTensor& x, ReferenceMode mode);
    HostTensor with_both_texts(const HostTensor& x, ReferenceMode mode);

    Transformer& transformer_;
    DenoiseOptions options_;
    SharedTensor txt_, negative_txt_;
    TransformerInput input_;
};

}  // namespace flux2
