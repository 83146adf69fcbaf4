#include "dialects/a1111_fields.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "dialects/a1111_pictures.hpp"
#include "http/picture_fields.hpp"

#include <cmath>
#include <cstdint>
#include <random>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr int kMostInAll = Pipeline::kMostPictures;
constexpr double kMostDistilledCfg = 100;

const FieldTable& prompt_table() {
    static const FieldTable table = [] {
        FieldTable fields = prompt_fields();
        for (Field& field : fields) {
            field.required = false;  // an empty prompt is allowed
        }
        return fields;
    }();
    return table;
}

// Numbers in strings, flags as 0 and 1, and 0 and 1 as flags: A1111 accepts them, and clients rely
// on it.
void convert_types(const FieldTable& table, json& body) {
    for (const Field& field : table) {
        const auto found = body.find(field.name);
        if (found == body.end()) {
            continue;
        }
        const bool is_number = field.kind == FieldKind::integer ||
                               field.kind == FieldKind::number || field.kind == FieldKind::seed;
        if (is_number && found->is_string()) {
            const json number = json::parse(found->get<std::string>(), nullptr, false);
            *found = number.is_number() ? number : *found;
        } else if (is_number && found->is_boolean()) {
            *found = found->get<bool>() ? 1 : 0;
        } else if (field.kind == FieldKind::boolean && found->is_number_integer()) {
            *found = *found != 0;
        }
    }
}

// The model that a request names: by A1111's way, or as stable-diffusion.cpp's clients do.
std::string model_title(const json& body, const std::string& chosen) {
    const json settings = body.value("override_settings", json());
    for (const json& title :
         {settings.is_object() ? settings.value("sd_model_checkpoint", json()) : json(),
          body.value("model", json())}) {
        if (title.is_string() && title != "") {
            return title.get<std::string>();
        }
    }
    return chosen;
}

// The request without what is large.
json repeated(json body) {
    for (const char* name : {"init_images", "mask", "image"}) {
        if (body.contains(name)) {
            body[name] = nullptr;
        }
    }
    return body;
}

uint64_t random_seed() {
    std::random_device random;
    return random() % 4294967295u;  // the range of A1111's own random seeds
}

void read_size_fields(const RequestFields& fields, Request& request) {
    request.width = fields.integer("width");
    request.height = fields.integer("height");
    request.fit_size = true;
    if (request.width.has_value() != request.height.has_value()) {
        throw FieldError(request.width ? "height" : "width",
                         "width and height are given together, or neither of them");
    }
}

// Clients of this API send steps and a cfg scale that fit other models, mostly without their user's
// doing. Distilled models need neither: they are drawn with their own, unless the server is told to
// obey. Returns what was left out.
std::string leave_out_steps(const FileInfo& model, bool obey, Request& request) {
    std::string ignored;
    const auto note = [&](const std::string& what) {
        ignored += (ignored.empty() ? "" : ", ") + what;
    };
    if (model.distilled && !obey && request.steps) {
        if (*request.steps != model.default_steps) {
            note(concat("steps ", *request.steps));
        }
        request.steps.reset();
    }
    const bool has_two_passes = model.variant == "base";
    if (!has_two_passes && !obey && request.cfg_scale) {
        if (*request.cfg_scale != 1.0f) {
            note(concat("cfg_scale ", *request.cfg_scale));
        }
        request.cfg_scale.reset();
    }
    return ignored.empty() ? ""
                           : concat(ignored, ": ", model.name,
                                    " is drawn with its own; --respect-client-steps changes that");
}

}  // namespace

const FieldTable& txt2img_fields() {
    static const FieldTable table =
        joined(prompt_table(),
               {{"width", FieldKind::integer,
                 "rounded to a multiple of 16; absent: the model's own", kMinSide, kMaxSide},
                {"height", FieldKind::integer, "likewise", kMinSide, kMaxSide},
                {"batch_size", FieldKind::integer, "pictures at a time", 1, kMostInAll},
                {"n_iter", FieldKind::integer, "how often that many", 1, kMostInAll},
                {"distilled_cfg_scale", FieldKind::number,
                 "guidance of models that take it as a number", 0, kMostDistilledCfg},
                {"model", FieldKind::text, "a name of GET /sdapi/v1/sd-models", 0, 200},
                {"enable_hr", FieldKind::boolean, "ignored: ask for the size you want"},
                {"send_images", FieldKind::boolean, "whether the answer has the pictures"}});
    return table;
}

const FieldTable& img2img_fields() {
    static const FieldTable table = joined(txt2img_fields(), a1111_picture_fields());
    return table;
}

const ModelEntry& a1111_model(const Service& service, const std::string& title) {
    const size_t bracket = title.ends_with("]") ? title.rfind(" [") : std::string::npos;
    return service.model(title.substr(0, bracket));
}

A1111Request read_a1111_request(A1111Kind kind, const httplib::Request& request,
                                const Service& service, const std::string& chosen) {
    const bool is_img2img = kind == A1111Kind::img2img;
    const FieldTable& table = is_img2img ? img2img_fields() : txt2img_fields();
    json body = parse_body(request.body);
    if (body.is_object()) {
        convert_types(table, body);
    }
    const RequestFields fields = RequestFields::from_json(table, body);
    const std::string title = model_title(body, chosen);
    const ModelEntry& model = a1111_model(service, title);

    A1111Request asked;
    asked.job.model = model.name;
    asked.job.n = fields.integer("batch_size").value_or(1);
    asked.n_batches = fields.integer("n_iter").value_or(1);
    if (asked.job.n * asked.n_batches > kMostInAll) {
        throw FieldError("n_iter",
                         concat("batch_size times n_iter is ", asked.job.n * asked.n_batches,
                                ", at most ", kMostInAll, " pictures are made for a request"));
    }
    Request& drawn = asked.job.request;
    read_prompt_fields(fields, service, drawn);
    drawn.seed = drawn.seed.value_or(random_seed());
    if (const auto guidance = fields.number("distilled_cfg_scale")) {
        drawn.guidance = guidance;
    }
    drawn.preview = true;
    read_size_fields(fields, drawn);
    asked.ignored = leave_out_steps(model.info, service.options().respect_client_steps, drawn);
    if (fields.boolean("enable_hr")) {
        asked.ignored += (asked.ignored.empty() ? "" : "; ") +
                         std::string("enable_hr: ask for the size that is wanted");
    }
    if (is_img2img) {
        read_a1111_pictures(fields, drawn);
    }
    asked.send_images = fields.boolean("send_images", true);
    asked.parameters = repeated(std::move(body));
    return asked;
}

}  // namespace flux2::server
