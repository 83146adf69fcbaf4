#include "pipeline/denoise.hpp"

#include "pipeline/latents.hpp"

#include <algorithm>
#include <cstddef>

namespace flux2 {

Denoiser::Denoiser(Transformer& transformer, const Conditioning& conditioning, int64_t w, int64_t h,
                   const DenoiseOptions& options)
    : transformer_(transformer),
      options_(options),
      txt_(conditioning.txt),
      negative_txt_(conditioning.negative_txt) {
    input_.txt_pos = text_positions(txt_->ne[1]);
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

HostTensor Denoiser::with_text(const SharedTensor& txt, const HostTensor& x, ReferenceMode mode) {
    input_.img = x;
    input_.txt = txt;
    input_.negative_txt = nullptr;
    return transformer_.predict(input_, mode);
}

HostTensor Denoiser::with_both_texts(const HostTensor& x, ReferenceMode mode) {
    input_.img = x;
    input_.txt = txt_;
    input_.negative_txt = negative_txt_;
    return transformer_.predict(input_, mode);
}

// The first step of KV models: what is kept is the same for all pictures.
HostTensor Denoiser::keep_references(const HostTensor& x) {
    std::vector<HostTensor> velocities = {
        with_text(txt_, picture_of(x, 0), ReferenceMode::extract)};
    if (x.ne[2] > 1) {
        std::vector<HostTensor> others;
        for (int64_t i = 1; i < x.ne[2]; ++i) {
            others.push_back(picture_of(x, i));
        }
        velocities.push_back(with_text(txt_, join_pictures(others), ReferenceMode::cached));
    }
    return join_pictures(velocities);
}

HostTensor Denoiser::velocity(const HostTensor& x, float sigma, size_t step) {
    input_.timestep = sigma;
    const ReferenceMode mode = reference_mode(step);
    const bool keeps = mode == ReferenceMode::extract;
    const bool guided =
        options_.cfg_scale > 1.0f && negative_txt_ && options_.guided_steps.contains(step);
    if (guided && options_.one_pass && !keeps) {
        const HostTensor both = with_both_texts(x, mode);
        HostTensor cond(x.ne);
        HostTensor uncond(x.ne);
        const auto half = both.data.begin() + static_cast<std::ptrdiff_t>(x.data.size());
        std::copy(both.data.begin(), half, cond.data.begin());
        std::copy(half, both.data.end(), uncond.data.begin());
        return guide(cond, uncond, options_.cfg_scale);
    }
    HostTensor cond = keeps ? keep_references(x) : with_text(txt_, x, mode);
    if (!guided) {
        return cond;
    }
    // What is kept of references does not depend on the text: the first pass kept it for both.
    const HostTensor uncond = with_text(negative_txt_, x, keeps ? ReferenceMode::cached : mode);
    return guide(cond, uncond, options_.cfg_scale);
}

HostTensor picture_of(const HostTensor& x, int64_t i) {
    HostTensor picture({x.ne[0], x.ne[1], 1, 1});
    const auto n = static_cast<std::ptrdiff_t>(picture.data.size());
    std::copy_n(x.data.begin() + i * n, n, picture.data.begin());
    return picture;
}

HostTensor join_pictures(const std::vector<HostTensor>& pictures) {
    HostTensor joined = pictures.front();
    for (size_t i = 1; i < pictures.size(); ++i) {
        joined.data.insert(joined.data.end(), pictures[i].data.begin(), pictures[i].data.end());
        joined.ne[2] += pictures[i].ne[2];
    }
    return joined;
}

}  // namespace flux2
