// Repainting a part of a picture: which region the model sees and at which size, which tokens may
// change, and how its result becomes part of the picture again.
#pragma once

#include <flux2/flux2.hpp>
#include "base/host_tensor.hpp"
#include "image/mask.hpp"
#include "image/region.hpp"

#include <optional>
#include <vector>

namespace flux2 {

class Edit {
  public:
    // Of a request with `inpaint` or `outpaint`. model_size: the size the model draws by itself;
    // width and height: what the caller asks the model to work at, checked before. Throws
    // bad_argument.
    Edit(const Request& request, ImageSize model_size, std::optional<int> width,
         std::optional<int> height);

    // Of the result.
    ImageSize canvas() const { return canvas_; }
    // The part of the canvas that the model sees.
    const Region& region() const { return region_; }
    // The size of the picture the model makes, in multiples of 16.
    ImageSize working_size() const { return working_; }

    // What the model sees: the region at working size, in sRGB.
    Image model_picture(const Image& source) const;
    // For each token of it how much is repainted, 0..1.
    std::vector<float> cells() const;
    // The result: the source, enlarged as asked for, with what the model made where the mask is not
    // 0. It has the source's profile.
    Image finish(const Image& source, const Image& made) const;

  private:
    void choose_region(const Request& request, ImageSize model_size);
    void choose_size(ImageSize model_size, std::optional<int> width, std::optional<int> height);
    Image enlarged(const Image& source) const;
    Image with_profile_of(const Image& source, const Image& source_srgb, const Image& result) const;

    ImageSize canvas_;
    Outpaint outpaint_;
    Mask mask_;  // of the canvas, grown and blurred
    int blend_ = 0;
    InpaintArea area_ = InpaintArea::whole;
    bool keep_colours_ = false;
    Region region_;
    // The region at the size the model sees it, and that size in multiples of 16: the rest, at the
    // right and at the bottom, repeats the border.
    ImageSize inner_, working_;
};

// What stays of a picture while the rest is denoised.
struct KnownRegion {
    HostTensor noise, latents;  // tokens [channels, n]; the same noise in all steps
    std::vector<float> mask;    // of the n tokens: 1 is repainted, 0 is known

    // Puts the known tokens, at this noise level, in the place of those of x.
    void blend(HostTensor& x, float sigma) const;
};

}  // namespace flux2
