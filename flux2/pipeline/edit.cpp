#include "pipeline/edit.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/log.hpp"
#include "image/colour_match.hpp"
#include "image/colour_profile.hpp"
#include "image/image.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace flux2 {
namespace {

// A whole picture above this size is scaled down for the model, as in the reference
// implementation's pipeline for inpainting.
constexpr double kWholePixels = 1024.0 * 1024.0;
constexpr int kMaxMargin = 512;  // of growing, blurring and blending

int up_to_grid(double side) {
    return static_cast<int>(std::ceil(side / kImageGrid)) * kImageGrid;
}

void check_in_range(const char* what, int value, int least, int most) {
    check(value >= least && value <= most, ErrorKind::bad_argument, what, " ", value,
          " pixels is out of range; use ", least, " to ", most);
}

// What is painted must be converted into the colours of what is kept.
void check_two_way(const Image& source) {
    if (source.profile.empty()) {
        return;
    }
    const auto facts = examine_profile(source.profile);
    check(facts && facts->is_two_way, ErrorKind::bad_argument,
          "the picture to change has a colour profile into which nothing can be converted; convert "
          "the picture to sRGB first");
}

void check_margins(const Outpaint& outpaint, const Image& source) {
    for (const int margin : {outpaint.left, outpaint.top, outpaint.right, outpaint.bottom}) {
        check(margin >= 0 && margin <= kMaxImageSide, ErrorKind::bad_argument,
              "enlarging a picture by ", margin, " pixels is out of range; use 0 to ",
              kMaxImageSide);
    }
    check(outpaint.left + outpaint.top + outpaint.right + outpaint.bottom > 0,
          ErrorKind::bad_argument,
          "the picture is to be enlarged by 0 pixels on all sides; name a side and how much");
    const int width = source.width + outpaint.left + outpaint.right;
    const int height = source.height + outpaint.top + outpaint.bottom;
    check(std::max(width, height) <= kMaxImageSide, ErrorKind::bad_argument, "a canvas of ", width,
          "x", height, " is over the limit of ", kMaxImageSide,
          " pixels a side; enlarge the picture by less");
}

// What the caller's mask asks for, of the source's size.
Mask prepared_mask(const Inpaint& inpaint, const Image& source) {
    check_mask(inpaint.mask);
    check(inpaint.mask.width == source.width && inpaint.mask.height == source.height,
          ErrorKind::bad_argument, "the mask has ", inpaint.mask.width, "x", inpaint.mask.height,
          " pixels, the picture ", source.width, "x", source.height,
          "; make a mask of the picture's size");
    check_in_range("growing a mask by", inpaint.grow, -kMaxMargin, kMaxMargin);
    check_in_range("blurring a mask by", inpaint.blur, 0, kMaxMargin);
    const Mask mask = blurred(
        grown(inpaint.invert ? inverted(inpaint.mask) : inpaint.mask, inpaint.grow), inpaint.blur);
    const auto [least, most] = std::minmax_element(mask.values.begin(), mask.values.end());
    check(*most > 0, ErrorKind::bad_argument,
          "the mask is empty, so nothing would change; paint what is to change in white");
    check(*least < 255, ErrorKind::bad_argument,
          "the mask covers the whole picture, so nothing would be kept; leave it out to change "
          "all of it");
    return mask;
}

// A mask of the enlarged canvas: all that is new is repainted.
Mask canvas_mask(const Mask& inside, const Outpaint& margins, ImageSize canvas) {
    Mask mask{canvas.width, canvas.height, {}};
    mask.values.assign(static_cast<size_t>(canvas.width) * static_cast<size_t>(canvas.height), 255);
    for (int y = 0; y < inside.height; ++y) {
        const auto from = inside.values.begin() + std::ptrdiff_t{y} * inside.width;
        const auto to =
            mask.values.begin() + (std::ptrdiff_t{y} + margins.top) * canvas.width + margins.left;
        std::copy(from, from + inside.width, to);
    }
    return mask;
}

// The region of this size around the middle of another, moved until it lies within the canvas.
Region around(const Region& other, ImageSize size, ImageSize canvas) {
    const auto begin = [](int middle_twice, int length, int most) {
        return std::clamp((middle_twice - length) / 2, 0, most - length);
    };
    return {begin(2 * other.x + other.width, size.width, canvas.width),
            begin(2 * other.y + other.height, size.height, canvas.height), size.width, size.height};
}

Region padded(const Region& region, int padding, ImageSize canvas) {
    const int left = std::max(0, region.x - padding);
    const int top = std::max(0, region.y - padding);
    return {left, top, std::min(canvas.width, region.right() + padding) - left,
            std::min(canvas.height, region.bottom() + padding) - top};
}

int default_padding(const Region& masked) {
    return std::max(32, std::max(masked.width, masked.height) / 4);
}

int default_blend(const Region& masked) {
    return std::clamp(std::min(masked.width, masked.height) / 16, 2, 32);
}

}  // namespace

Edit::Edit(const Request& request, ImageSize model_size, std::optional<int> width,
           std::optional<int> height)
    : outpaint_(request.outpaint.value_or(Outpaint{})), keep_colours_(request.keep_colours) {
    check(request.init.has_value(), ErrorKind::bad_argument,
          "a mask or a larger canvas needs a picture to change; add one with ", Setting::init);
    check(!request.match_reference, ErrorKind::bad_argument,
          "a picture of which a part is repainted keeps its size; leave out the size of a "
          "reference");
    const Image& source = request.init->image;
    check_image(source);
    check_two_way(source);
    if (request.outpaint) {
        check_margins(outpaint_, source);
    }
    canvas_ = {source.width + outpaint_.left + outpaint_.right,
               source.height + outpaint_.top + outpaint_.bottom};
    const Inpaint inpaint = request.inpaint.value_or(Inpaint{});
    if (request.inpaint) {
        mask_ = prepared_mask(inpaint, source);
    } else {
        const size_t n = static_cast<size_t>(source.width) * static_cast<size_t>(source.height);
        mask_ = {source.width, source.height, std::vector<uint8_t>(n)};
    }
    if (request.outpaint) {
        mask_ = canvas_mask(mask_, outpaint_, canvas_);
    }
    area_ = inpaint.area;
    choose_region(request, model_size);
    choose_size(model_size, width, height);
}

void Edit::choose_region(const Request& request, ImageSize model_size) {
    const Inpaint inpaint = request.inpaint.value_or(Inpaint{});
    const Region masked = covered_region(mask_);
    blend_ = inpaint.blend.value_or(default_blend(masked));
    check_in_range("blending over", blend_, 0, kMaxMargin);
    region_ = {0, 0, canvas_.width, canvas_.height};
    if (area_ == InpaintArea::whole) {
        return;
    }
    const int padding = inpaint.padding.value_or(default_padding(masked));
    check_in_range("padding of", padding, 0, kMaxImageSide);
    region_ = padded(masked, padding, canvas_);
    // Enlarging fewer pixels than these would show the model nothing but blur.
    const ImageSize least = {
        std::min(canvas_.width, std::max(region_.width, model_size.width / 8)),
        std::min(canvas_.height, std::max(region_.height, model_size.height / 8))};
    region_ = around(region_, least, canvas_);
}

void Edit::choose_size(ImageSize model_size, std::optional<int> width, std::optional<int> height) {
    const double pixels = static_cast<double>(region_.width) * region_.height;
    const double wanted = area_ == InpaintArea::masked
                              ? static_cast<double>(model_size.width) * model_size.height
                              : std::min(pixels, kWholePixels);
    // No side beyond the limit, whatever the shape.
    const double scale =
        std::min(std::sqrt(wanted / pixels),
                 static_cast<double>(kMaxSide) / std::max(region_.width, region_.height));
    const auto side = [&](int length) {
        return std::clamp(up_to_grid(length * scale - 1e-6), kMinSide, kMaxSide);
    };
    working_ = {width.value_or(side(region_.width)), height.value_or(side(region_.height))};
    if (area_ == InpaintArea::masked) {
        // Somewhat more of the canvas, so that the region has the shape of that size.
        const double shown = std::min(static_cast<double>(working_.width) / region_.width,
                                      static_cast<double>(working_.height) / region_.height);
        const ImageSize shaped = {
            std::min(canvas_.width, static_cast<int>(std::lround(working_.width / shown))),
            std::min(canvas_.height, static_cast<int>(std::lround(working_.height / shown)))};
        region_ = around(region_, shaped, canvas_);
    }
    const bool is_scaled = width || height || scale != 1.0;
    inner_ = is_scaled ? working_ : ImageSize{region_.width, region_.height};
    if (is_scaled && area_ == InpaintArea::whole && !width && !height) {
        log(LogLevel::warning, concat("the picture of ", canvas_.width, "x", canvas_.height,
                                      " is repainted at ", working_.width, "x", working_.height,
                                      "; to see the part that changes sharper, use ",
                                      Setting::inpaint_area, " masked"));
    }
}

// What is new begins as the border, blurred: of 12 pictures of the tiny model 10 to 12 continued
// then, with a grey area none (docs/editing.md).
Image Edit::enlarged(const Image& source) const {
    return extend_blurred(source,
                          {outpaint_.left, outpaint_.top, outpaint_.right, outpaint_.bottom});
}

Image Edit::model_picture(const Image& source) const {
    if (!source.profile.empty()) {
        return model_picture(to_srgb(source));
    }
    const Image seen = crop(enlarged(source), region_);
    const Image scaled = inner_.width == seen.width && inner_.height == seen.height
                             ? seen
                             : resize_lanczos(seen, inner_.width, inner_.height);
    return extend_edges(scaled, {.right = working_.width - inner_.width,
                                 .bottom = working_.height - inner_.height});
}

std::vector<float> Edit::cells() const {
    return mask_cells(mask_, region_, inner_, working_.width / kImageGrid,
                      working_.height / kImageGrid);
}

// A result in sRGB with the source's profile: the source's bytes where its colours were kept, the
// others converted.
Image Edit::with_profile_of(const Image& source, const Image& source_srgb,
                            const Image& result) const {
    Image converted{result.width, result.height, result.rgb, source.profile};
    convert_from_srgb(source.profile, converted.rgb);
    const auto width = static_cast<size_t>(source.width);
    for (size_t y = 0; y < static_cast<size_t>(source.height); ++y) {
        const size_t row =
            static_cast<size_t>(canvas_.width) * (y + static_cast<size_t>(outpaint_.top)) +
            static_cast<size_t>(outpaint_.left);
        for (size_t x = 0; x < width; ++x) {
            const auto from = static_cast<std::ptrdiff_t>(3 * (y * width + x));
            const auto to = static_cast<std::ptrdiff_t>(3 * (row + x));
            if (std::equal(source_srgb.rgb.begin() + from, source_srgb.rgb.begin() + from + 3,
                           result.rgb.begin() + to)) {
                std::copy_n(source.rgb.begin() + from, 3, converted.rgb.begin() + to);
            }
        }
    }
    return converted;
}

Image Edit::finish(const Image& source, const Image& made) const {
    if (!source.profile.empty()) {
        const Image source_srgb = to_srgb(source);
        return with_profile_of(source, source_srgb, finish(source_srgb, made));
    }
    Image result = enlarged(source);
    const Image before = crop(result, region_);
    Image picture = crop(made, {0, 0, inner_.width, inner_.height});
    if (inner_.width != region_.width || inner_.height != region_.height) {
        picture = resize_lanczos(picture, region_.width, region_.height);
    }
    if (keep_colours_ && !match_colours(picture, before)) {
        log(LogLevel::warning,
            "the result has little in common with the picture: its colours stay as they are");
    }
    const Mask mask = crop(mask_, region_);
    match_seam(picture, before, mask);
    const Mask share = softened_inside(mask, blend_);
    for (int y = 0; y < region_.height; ++y) {
        for (int x = 0; x < region_.width; ++x) {
            const size_t from = static_cast<size_t>(y) * static_cast<size_t>(region_.width) +
                                static_cast<size_t>(x);
            const size_t to =
                (static_cast<size_t>(region_.y + y) * static_cast<size_t>(canvas_.width) +
                 static_cast<size_t>(region_.x + x));
            for (size_t c = 0; c < 3; ++c) {
                uint8_t& value = result.rgb[3 * to + c];
                const int change = picture.rgb[3 * from + c] - value;
                value = static_cast<uint8_t>(
                    value + std::lround(change * static_cast<double>(share.values[from]) / 255.0));
            }
        }
    }
    return result;
}

void KnownRegion::blend(HostTensor& x, float sigma) const {
    const auto channels = static_cast<size_t>(x.ne[0]);
    for (size_t i = 0; i < x.data.size(); ++i) {
        const float share = mask[i / channels];
        const float known = sigma * noise.data[i] + (1.0f - sigma) * latents.data[i];
        x.data[i] = share * x.data[i] + (1.0f - share) * known;
    }
}

}  // namespace flux2
