#include "dialects/native_fields.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "http/picture_fields.hpp"
#include "http/uploads.hpp"

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr double kMostMargin = kMaxSide;

// The files of a field: of a form, else from JSON.
std::vector<std::string> files_of(const httplib::Request& request, const RequestFields& fields,
                                  const char* name, size_t most) {
    return request.is_multipart_form_data() ? files_from_form(name, request.form, most)
                                            : files_from_json(name, fields.value(name), most);
}

void read_sizes(const RequestFields& fields, Request& request) {
    request.width = fields.integer("width");
    request.height = fields.integer("height");
    request.fit_size = fields.boolean("fit_size");
    for (const auto& [name, side] :
         {std::pair{"width", request.width}, {"height", request.height}}) {
        if (side && !request.fit_size) {
            check_side(name, *side);
        }
    }
}

void read_references(const httplib::Request& http, const RequestFields& fields, Request& request) {
    for (const std::string& file : files_of(http, fields, "references", kMaxReferences)) {
        request.references.push_back(uploaded_image("references", file));
    }
    request.reference_roles = fields.texts("reference_roles");
    const size_t n_roles = request.reference_roles.size();
    if (n_roles > request.references.size()) {
        throw FieldError("reference_roles", concat("reference_roles has ", n_roles, " items for ",
                                                   request.references.size(), " references"));
    }
    if (n_roles > 0) {
        request.reference_roles.resize(request.references.size());
    }
    request.reference_pixels = fields.integer("reference_pixels");
    if (const auto number = fields.integer("match_reference")) {
        request.match_reference = static_cast<size_t>(*number - 1);
    }
}

std::optional<Outpaint> read_outpaint(const RequestFields& fields) {
    const Outpaint margins = {fields.integer("outpaint_left").value_or(0),
                              fields.integer("outpaint_top").value_or(0),
                              fields.integer("outpaint_right").value_or(0),
                              fields.integer("outpaint_bottom").value_or(0)};
    const bool any = margins.left + margins.top + margins.right + margins.bottom > 0;
    return any ? std::optional(margins) : std::nullopt;
}

void read_inpaint(const httplib::Request& http, const RequestFields& fields, Request& request) {
    const auto masks = files_of(http, fields, "mask", 1);
    if (masks.empty()) {
        return;
    }
    Inpaint& inpaint = request.inpaint.emplace();
    inpaint.mask = uploaded_mask("mask", masks.front());
    inpaint.invert = fields.boolean("mask_invert");
    inpaint.grow = fields.integer("mask_grow").value_or(0);
    inpaint.blur = fields.integer("mask_blur").value_or(0);
    inpaint.blend = fields.integer("mask_blend");
    inpaint.padding = fields.integer("inpaint_padding");
    const bool is_masked = fields.text("inpaint_area") == "masked";
    inpaint.area = is_masked ? InpaintArea::masked : InpaintArea::whole;
}

void read_edit(const httplib::Request& http, const RequestFields& fields, Request& request) {
    const auto images = files_of(http, fields, "image", 1);
    if (!images.empty()) {
        request.init =
            InitImage{uploaded_image("image", images.front()), fields.number("strength")};
    }
    read_inpaint(http, fields, request);
    request.outpaint = read_outpaint(fields);
    if (!request.init && (request.inpaint || request.outpaint || fields.has("strength"))) {
        throw FieldError("image",
                         "image is missing; a mask, a larger canvas or a strength needs a "
                         "picture to change");
    }
    request.keep_colours = fields.boolean("keep_colours");
}

void read_sampling(const RequestFields& fields, Request& request) {
    if (const std::vector<float> interval = fields.numbers("guidance_interval");
        !interval.empty()) {
        if (interval.size() != 2) {
            throw FieldError("guidance_interval",
                             "guidance_interval has two numbers, from and until, such as [0, 0.5]");
        }
        request.guidance_interval = {interval[0], interval[1]};
    }
    request.sigmas = fields.numbers("sigmas");
    request.text_length = fields.integer("text_length");
    request.generator = fields.text("generator", request.generator);
}

}  // namespace

const FieldTable& native_fields() {
    static const FieldTable table = joined(
        prompt_fields(),
        {{"model", FieldKind::text, "a name of GET /api/v1/models; absent: the first", 0, 200},
         {"n", FieldKind::integer, "how many pictures, with seeds counted up", 1,
          Pipeline::kMostPictures},
         {"width", FieldKind::integer, "in steps of 16; absent: a picture's, else the model's", 1,
          kMaxSide},
         {"height", FieldKind::integer, "likewise", 1, kMaxSide},
         {"fit_size", FieldKind::boolean, "round sizes to steps of 16"},
         {"preview", FieldKind::boolean, "events carry the unfinished picture"},
         {"image", FieldKind::pictures, "a picture to change", 0, 1},
         {"strength", FieldKind::number, "how much of it is changed", 0.01, 1},
         {"mask", FieldKind::pictures,
          "of the picture's size: white, or what is transparent, is painted anew", 0, 1},
         {"mask_invert", FieldKind::boolean, "paint what the mask leaves out"},
         {"mask_grow", FieldKind::integer, "pixels by which the mask is widened", -1024, 1024},
         {"mask_blur", FieldKind::integer, "pixels over which its edges become soft", 0, 1024},
         {"mask_blend", FieldKind::integer, "pixels inside its edge that pass into the picture", 0,
          1024},
         {"inpaint_area", FieldKind::word, "what the model sees", 0, 0, {"whole", "masked"}},
         {"inpaint_padding", FieldKind::integer, "pixels around a masked area", 0, kMaxSide},
         {"outpaint_left", FieldKind::integer, "pixels by which the canvas grows", 0, kMostMargin},
         {"outpaint_top", FieldKind::integer, "likewise", 0, kMostMargin},
         {"outpaint_right", FieldKind::integer, "likewise", 0, kMostMargin},
         {"outpaint_bottom", FieldKind::integer, "likewise", 0, kMostMargin},
         {"keep_colours", FieldKind::boolean, "match colours to those of the picture"},
         {"references", FieldKind::pictures, "pictures that the prompt may refer to", 0,
          kMaxReferences},
         {"reference_roles", FieldKind::texts, "what each is for: a word of the capabilities"},
         {"reference_pixels", FieldKind::integer, "largest size of references; 0: as they are", 0,
          1 << 28},
         {"match_reference", FieldKind::integer, "take the size of this reference", 1,
          kMaxReferences},
         {"guidance_interval", FieldKind::numbers, "the share of steps with two passes: [0, 0.5]"},
         {"sigmas", FieldKind::numbers, "noise levels from 1 to 0 in place of steps"},
         {"text_length", FieldKind::integer, "tokens of the prompt", 1, 4096},
         {"generator",
          FieldKind::word,
          "how noise is drawn",
          0,
          0,
          {"cuda", "cuda-f32", "cpu", "cpu-f32"}}});
    return table;
}

JobRequest read_native_request(const httplib::Request& http, const Service& service) {
    const RequestFields fields = RequestFields::read(native_fields(), http);
    JobRequest job;
    job.model = service.model(fields.text("model")).name;
    job.n = fields.integer("n").value_or(1);
    read_prompt_fields(fields, service, job.request);
    read_sizes(fields, job.request);
    read_references(http, fields, job.request);
    read_edit(http, fields, job.request);
    read_sampling(fields, job.request);
    job.request.preview = fields.boolean("preview");
    return job;
}

}  // namespace flux2::server
