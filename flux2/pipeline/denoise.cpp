#include "pipeline/denoise.hpp"

#include "pipeline/latents.hpp"
#include "pipeline/sampler.hpp"

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

HostTensor Denoiser::velocity(const HostTensor& x, float sigma, size_t step) {
    input_.img = x;
    input_.timestep = sigma;
    ReferenceMode mode = ReferenceMode::joint;
    if (options_.kv_references && !input_.ref.data.empty()) {
        mode = step == 0 ? ReferenceMode::extract : ReferenceMode::cached;
    }
    HostTensor cond = transformer_.predict(input_, mode);
    // Models with a guidance input have it embedded; the others need a second pass.
    if (transformer_.sizes().guidance || options_.guidance <= 1.0f || !negative_txt_) {
        return cond;
    }
    std::swap(input_.txt, negative_txt_);
    const HostTensor uncond = transformer_.predict(input_, mode);
    std::swap(input_.txt, negative_txt_);
    return guide(cond, uncond, options_.guidance);
}

}  // namespace flux2
