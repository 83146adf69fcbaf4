#include "dialects/openai_fields.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "http/uploads.hpp"

#include <algorithm>

namespace flux2::server {
namespace {

constexpr double kMostPictures = 10;
constexpr double kMostPartialImages = 3;
constexpr int64_t kBytesPerToken = 4;  // of English text, roughly

const FieldTable& shared_fields() {
    static const FieldTable table = {
        {"model", FieldKind::text, "a name of GET /v1/models; OpenAI's names mean the first", 0,
         200},
        {"n", FieldKind::integer, "how many pictures", 1, kMostPictures},
        {"size", FieldKind::text, "auto, or such as 1024x768: sides in steps of 16", 0, 20},
        {"quality",
         FieldKind::word,
         "more steps take longer; auto: the model's own",
         0,
         0,
         {"auto", "low", "medium", "high", "standard", "hd"}},
        {"background",
         FieldKind::word,
         "pictures are never transparent",
         0,
         0,
         {"auto", "opaque", "transparent"}},
        {"output_format", FieldKind::word, "format of the pictures", 0, 0, {"png", "jpeg", "webp"}},
        {"output_compression", FieldKind::integer, "quality of JPEG and WebP", 0, 100},
        {"response_format",
         FieldKind::word,
         "pictures in the answer, or where they can be fetched",
         0,
         0,
         {"url", "b64_json"}},
        {"stream", FieldKind::boolean, "send events while the picture is made"},
        {"partial_images", FieldKind::integer, "unfinished pictures to send meanwhile", 0,
         kMostPartialImages},
        {"references", FieldKind::pictures, "more pictures that the prompt may refer to", 0,
         kMaxReferences}};
    return table;
}

// The steps for a quality. Distilled models have few steps, which are rarely worth halving.
std::optional<int> steps_of(const std::string& quality, const FileInfo& model) {
    if (quality == "low") {
        return std::max(1, (model.default_steps + 1) / 2);
    }
    if ((quality == "high" || quality == "hd") && model.distilled) {
        return 2 * model.default_steps;
    }
    return std::nullopt;
}

int64_t tokens_of(const Image& image, size_t n_images) {
    const int64_t pixels = int64_t{image.width} * image.height;
    return std::min(pixels, max_reference_pixels(n_images)) / (kImageGrid * kImageGrid);
}

// The files of a field of either form of the request.
std::vector<std::string> files_of(const httplib::Request& request, const RequestFields& fields,
                                  const char* form_name, const char* json_name, size_t most) {
    if (request.is_multipart_form_data()) {
        return files_from_form(form_name, request.form, most);
    }
    return files_from_json(json_name, fields.value(json_name), most);
}

// The pictures of an edit are references. With a mask, or a strength, the first one is changed
// itself.
void read_edit(const httplib::Request& request, const RequestFields& fields, Request& picture) {
    // JSON has `images`; the form's name is understood there too.
    const char* field = fields.has("images") ? "images" : "image";
    const auto files = files_of(request, fields, "image", field, kMaxReferences);
    if (files.empty()) {
        throw FieldError("image", "image is missing; send the picture to edit");
    }
    for (const std::string& file : files) {
        picture.references.push_back(uploaded_image(field, file));
    }
    const auto masks = files_of(request, fields, "mask", "mask", 1);
    const std::optional<float> strength = fields.number("strength");
    if (masks.empty() && !strength) {
        return;
    }
    picture.init = InitImage{std::move(picture.references.front()), strength};
    picture.references.erase(picture.references.begin());
    if (!masks.empty()) {
        picture.inpaint.emplace();
        picture.inpaint->mask = uploaded_alpha_mask("mask", masks.front());
        const Mask& mask = picture.inpaint->mask;
        const Image& image = picture.init->image;
        if (mask.width != image.width || mask.height != image.height) {
            throw FieldError(
                "mask", concat("mask has ", mask.width, "x", mask.height, " pixels, its picture ",
                               image.width, "x", image.height, "; send one of the same size"));
        }
    }
}

bool is_dalle(const std::string& model) {
    return model.starts_with("dall-e");
}

}  // namespace

const FieldTable& generation_fields() {
    static const FieldTable table = joined(prompt_fields(), shared_fields());
    return table;
}

const FieldTable& edit_fields() {
    static const FieldTable table = joined(
        generation_fields(),
        {{"image", FieldKind::pictures, "pictures to edit; in a form files image or image[]", 0,
          kMaxReferences},
         {"images", FieldKind::pictures,
          "the same in JSON: a list of {\"image_url\": \"data:image/png;base64,...\"}", 0,
          kMaxReferences},
         {"mask", FieldKind::pictures,
          "a picture of the first one's size; what is transparent in it is painted anew", 0, 1},
         {"strength", FieldKind::number,
          "begin with the first picture and change it so much; absent: it is a reference", 0.01,
          1}});
    return table;
}

ImagesRequest read_images_request(ImagesKind kind, const httplib::Request& request,
                                  const Service& service) {
    const bool is_edit = kind == ImagesKind::edit;
    const RequestFields fields =
        RequestFields::read(is_edit ? edit_fields() : generation_fields(), request);
    const std::string model_name = fields.text("model");
    const ModelEntry& model = service.model(model_name);
    ImagesRequest images;
    images.kind = kind;
    images.job.model = model.name;
    images.job.n = fields.integer("n").value_or(1);
    images.job.keep_images = true;
    read_prompt_fields(fields, service, images.job.request);
    if (const std::string size = fields.text("size", "auto"); size != "auto") {
        read_size("size", size, images.job.request);
    }
    if (is_edit) {
        read_edit(request, fields, images.job.request);
    }
    for (const std::string& file :
         files_of(request, fields, "references", "references", kMaxReferences)) {
        images.job.request.references.push_back(uploaded_image("references", file));
    }
    images.quality = fields.text("quality", "auto");
    if (!images.job.request.steps) {
        images.job.request.steps = steps_of(images.quality, model.info);
    }
    if (fields.text("background") == "transparent") {
        throw FieldError("background",
                         "background is transparent, which these models cannot draw; use opaque");
    }
    constexpr int kOpenAiQuality = 100;
    images.format = picture_format(fields.text("output_format", "png"),
                                   fields.integer("output_compression").value_or(kOpenAiQuality));
    // Clients that ask for DALL-E fetch the picture, as that API had it.
    images.as_url = fields.text("response_format", is_dalle(model_name) ? "url" : "") == "url";
    images.stream = fields.boolean("stream");
    images.partial_images = fields.integer("partial_images").value_or(0);
    images.job.request.preview = images.stream && images.partial_images > 0;
    for (const Image& image : images.job.request.references) {
        images.n_image_tokens += tokens_of(image, images.job.request.references.size());
    }
    images.n_text_tokens =
        (static_cast<int64_t>(images.job.request.prompt.size()) + kBytesPerToken - 1) /
        kBytesPerToken;
    return images;
}

}  // namespace flux2::server
