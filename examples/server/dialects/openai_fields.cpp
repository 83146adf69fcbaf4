#include "dialects/openai_fields.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"

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
         kMostPartialImages}};
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

bool is_dalle(const std::string& model) {
    return model.starts_with("dall-e");
}

}  // namespace

const FieldTable& generation_fields() {
    static const FieldTable table = joined(prompt_fields(), shared_fields());
    return table;
}

ImagesRequest read_images_request(ImagesKind kind, const httplib::Request& request,
                                  const Service& service) {
    const RequestFields fields = RequestFields::read(generation_fields(), request);
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
    images.quality = fields.text("quality", "auto");
    if (!images.job.request.steps) {
        images.job.request.steps = steps_of(images.quality, model.info);
    }
    if (fields.text("background") == "transparent") {
        throw FieldError("background",
                         "background is transparent, which these models cannot draw; use opaque");
    }
    images.format = picture_format(fields.text("output_format", "png"));
    // Clients that ask for DALL-E fetch the picture, as that API had it.
    images.as_url = fields.text("response_format", is_dalle(model_name) ? "url" : "") == "url";
    images.stream = fields.boolean("stream");
    images.partial_images = fields.integer("partial_images").value_or(0);
    images.job.request.preview = images.stream && images.partial_images > 0;
    images.n_text_tokens =
        (static_cast<int64_t>(images.job.request.prompt.size()) + kBytesPerToken - 1) /
        kBytesPerToken;
    return images;
}

}  // namespace flux2::server
