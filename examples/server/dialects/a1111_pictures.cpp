#include "dialects/a1111_pictures.hpp"

#include "base/check.hpp"
#include "dialects/picture_fit.hpp"
#include "http/uploads.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flux2::server {
namespace {

// Defaults of A1111's API.
constexpr float kStrength = 0.75f;
constexpr int kMaskBlur = 4;

constexpr double kMostBlur = 64;
constexpr double kMostPadding = 1024;

Image read_init(const RequestFields& fields) {
    const std::vector<std::string> pictures = fields.texts("init_images");
    if (pictures.size() != 1) {
        throw FieldError("init_images", concat("init_images has ", pictures.size(),
                                               " pictures, expected one in base64"));
    }
    // Transparent pixels become white, as A1111 has it.
    return uploaded_image("init_images", file_from_text("init_images", pictures.front()),
                          Alpha::white);
}

// Grey values are rounded to black and white, unless the client wants them.
Mask read_mask(const RequestFields& fields) {
    Mask mask =
        uploaded_mask("mask", file_from_text("mask", fields.text("mask")), MaskAlpha::opaque);
    if (fields.boolean("mask_round", true)) {
        constexpr uint8_t kHalf = 128;
        for (uint8_t& value : mask.values) {
            value = value > kHalf ? 255 : 0;
        }
    }
    return mask;
}

// By resize_mode: just resize, crop and resize, resize and fill, resize the latents.
Fit fit_of(int resize_mode) {
    return resize_mode == 1 ? Fit::crop : resize_mode == 2 ? Fit::extend : Fit::stretch;
}

float read_strength(const RequestFields& fields) {
    const float strength = fields.number("denoising_strength").value_or(kStrength);
    if (strength == 0) {
        throw FieldError("denoising_strength",
                         "denoising_strength is 0, which changes nothing; expected above 0 to 1");
    }
    return strength;
}

Inpaint read_inpaint(const RequestFields& fields, Mask mask) {
    Inpaint inpaint;
    inpaint.mask = std::move(mask);
    inpaint.invert = fields.integer("inpainting_mask_invert").value_or(0) == 1;
    // A1111 gives the sigma of a Gaussian; beyond twice of it little changes.
    inpaint.blur = 2 * fields.integer("mask_blur").value_or(kMaskBlur);
    if (fields.boolean("inpaint_full_res", true)) {
        inpaint.area = InpaintArea::masked;
        inpaint.padding = fields.integer("inpaint_full_res_padding").value_or(0);
    }
    return inpaint;
}

}  // namespace

const FieldTable& a1111_picture_fields() {
    static const FieldTable table = {
        {"init_images", FieldKind::texts, "one picture in base64 to start from"},
        {"denoising_strength", FieldKind::number, "how much of it is changed, above 0 to 1", 0, 1},
        {"resize_mode", FieldKind::integer,
         "how it takes width and height: 0 stretched, 1 cropped, 2 extended", 0, 3},
        {"mask", FieldKind::text, "a picture in base64: white is repainted"},
        {"mask_blur", FieldKind::integer, "pixels over which the mask's edge is softened", 0,
         kMostBlur},
        {"mask_round", FieldKind::boolean, "whether the mask is rounded to black and white"},
        {"inpainting_mask_invert", FieldKind::integer, "1: black is repainted", 0, 1},
        {"inpaint_full_res", FieldKind::boolean,
         "true: only the masked region is drawn, at width and height"},
        {"inpaint_full_res_padding", FieldKind::integer, "pixels around that region", 0,
         kMostPadding}};
    return table;
}

void read_a1111_pictures(const RequestFields& fields, Request& request) {
    const Fit fit = fit_of(fields.integer("resize_mode").value_or(0));
    Image image = read_init(fields);
    std::optional<Inpaint> inpaint;
    if (fields.has("mask")) {
        Mask mask = read_mask(fields);
        if (mask.width != image.width || mask.height != image.height) {
            mask = fitted(mask, image.width, image.height, Fit::stretch);
        }
        inpaint = read_inpaint(fields, std::move(mask));
    }
    const bool keeps_size = inpaint && inpaint->area == InpaintArea::masked;
    const bool has_other_size =
        request.width && (*request.width != image.width || *request.height != image.height);
    if (has_other_size && !keeps_size) {
        image = fitted(image, *request.width, *request.height, fit);
        if (inpaint) {
            inpaint->mask = fitted(inpaint->mask, *request.width, *request.height, fit);
        }
    }
    if (inpaint && !keeps_size) {
        // The result has the picture's size; the model works at what suits it.
        request.width.reset();
        request.height.reset();
    }
    request.init = InitImage{std::move(image), read_strength(fields)};
    request.inpaint = std::move(inpaint);
}

}  // namespace flux2::server
