#include "pipeline/denoise.hpp"

#include "pipeline/latents.hpp"

#include <utility>

namespace flux2 {

Denoiser::Denoiser(Transformer& transformer, const Conditioning& conditioning, int64_t w, int64_t h,
                   const DenoiseOptions& options)
    : transformer_(transformer), options_(options), negative_txt_(conditioning.negative_txt) {
    input_.txt = conditioning.txt;
    input_.txt_pos = text_positions(input_.txt->ne[1]);
    input_.img_pos = image_positions(w, h);
    input_.guidance = options.guidance;
    HostTensor& ref = input_.ref;
    for (size_t i = 0; i < conditioning.references.size(); ++i) {
        const HostTensor& picture = conditioning.references[i];
        const HostTensor tokens = to_tokens(picture);
        const auto positions = image_positions(picture.ne[0], picture.ne[1], reference_time(i));
        ref.data.insert(ref.data.end(), tokens.data.begin(), tokens.data.end());
        ref.ne = {tokens.ne[0], (i == 0 ? 0 : ref.ne[1]) + tokens.ne[1], 1, 1};
        input_.ref_pos.insert(input_.ref_pos.end(), positions.begin(), positions.end());
    }
}

ReferenceMode Denoiser::reference_mode(size_t step) const {
    if (!options_.kv_references || input_.ref.data.empty()) {
        return ReferenceMode::joint;
    }
    return step == 0 ? ReferenceMode::extract : ReferenceMode::cached;
}

HostTensor Denoiser::velocity(const HostTensor& x, float sigma, size_t step) {
    input_.img = x;
    input_.timestep = sigma;
    const ReferenceMode mode = reference_mode(step);
    HostTensor cond = transformer_.predict(input_, mode);
    if (options_.cfg_scale <= 1.0f || !negative_txt_ || !options_.guided_steps.contains(step)) {
        return cond;
    }
    // What is kept of references does not depend on the text: the first pass kept it for both.
    std::swap(input_.txt, negative_txt_);
    const HostTensor uncond =
        transformer_.predict(input_, mode == ReferenceMode::extract ? ReferenceMode::cached : mode);
    std::swap(input_.txt, negative_txt_);
    return guide(cond, uncond, options_.cfg_scale);
}

}  // namespace flux2
