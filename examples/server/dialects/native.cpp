#include "dialects/native.hpp"

#include <flux2/device.hpp>
#include <flux2/version.hpp>
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/letter_case.hpp"
#include "dialects/native_fields.hpp"
#include "dialects/native_repeat.hpp"
#include "http/uploads.hpp"

#include <algorithm>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr const char* kCpu = "CPU";
// Models that are guided by two passes, so that a negative prompt has an effect.
constexpr const char* kGuidedVariant = "base";

json stage_json(const StageMemory& stage) {
    return {{"stage", stage.stage},
            {"placement", stage.placement},
            {"device_bytes", stage.device_weights + stage.device_compute},
            {"host_bytes", stage.host_weights + stage.host_compute},
            {"mapped_bytes", stage.mapped},
            {"seconds", stage.seconds}};
}

void send_plan(Service& service, const httplib::Request& request, httplib::Response& response) {
    JobRequest asked = read_native_request(request, service);
    asked.kind = JobKind::plan;
    asked.origin = response.get_header_value("x-request-id");
    const HeldJob job(service, std::move(asked));
    const MemoryPlan plan = job.wait(request).plan.value();
    json stages = json::array();
    for (const StageMemory& stage : plan.stages) {
        stages.push_back(stage_json(stage));
    }
    answer_json(response, {{"stages", stages},
                           {"pictures_per_pass", plan.n_pictures},
                           {"device_bytes", plan.device_peak},
                           {"host_bytes", plan.host_peak},
                           {"mapped_bytes", plan.mapped_peak},
                           {"seconds", plan.seconds}});
}

json model_json(Service& service, const ModelEntry& model) {
    json open_on = json::array();
    for (const JobRunner::Device& device : service.runner().devices()) {
        if (device.model == model.name) {
            open_on.push_back(device.name);
        }
    }
    const FileInfo& info = model.info;
    return {{"id", model.name},
            {"name", info.name},
            {"variant", info.variant},
            {"distilled", info.distilled},
            {"uses_negative_prompt", info.variant == kGuidedVariant},
            {"types", info.types},
            {"sha256", service.pool().hash(model)},
            {"loaded_on", open_on},
            {"defaults",
             {{"steps", info.default_steps},
              {"guidance", info.default_guidance},
              {"width", info.default_width},
              {"height", info.default_height}}}};
}

json models_json(Service& service) {
    json models = json::array();
    for (const ModelEntry& model : service.pool().entries()) {
        models.push_back(model_json(service, model));
    }
    return {{"models", models}};
}

json loras_json(Service& service) {
    json loras = json::array();
    for (const AdapterInfo& lora : service.loras()) {
        json facts = json::object();
        for (const auto& [key, value] : lora.facts) {
            facts[key] = value;
        }
        loras.push_back({{"name", lora.path.stem().string()},
                         {"kinds", lora.kinds},
                         {"made_for", lora.made_for},
                         {"ranks", lora.ranks},
                         {"facts", facts}});
    }
    return {{"loras", loras}};
}

const FieldTable& picture_settings_fields() {
    static const FieldTable table = {
        {"image", FieldKind::pictures, "a PNG, JPEG or WebP of flux2 or another program", 0, 1}};
    return table;
}

void send_picture_settings(Service& service, const httplib::Request& request,
                           httplib::Response& response) {
    const RequestFields fields = RequestFields::read(picture_settings_fields(), request);
    const auto files = request.is_multipart_form_data()
                           ? files_from_form("image", request.form, 1)
                           : files_from_json("image", fields.value("image"), 1);
    if (files.empty()) {
        throw FieldError("image", "image is missing; send a picture whose settings are wanted");
    }
    answer_json(response, repeat_of_file(service, files.front()));
}

const FieldTable& model_fields() {
    static const FieldTable table = {
        {"model", FieldKind::text, "a name of GET /api/v1/models; absent: the first", 0, 200}};
    return table;
}

void change_model(Service& service, JobKind kind, const httplib::Request& request,
                  httplib::Response& response) {
    const RequestFields fields = RequestFields::read(model_fields(), request);
    JobRequest asked;
    asked.kind = kind;
    asked.model = service.model(fields.text("model")).name;
    asked.origin = response.get_header_value("x-request-id");
    const HeldJob job(service, std::move(asked));
    job.wait(request);
    answer_json(response, models_json(service));
}

// What a device is called, with its memory as far as it may be used.
json device_json(const JobRunner::Device& device, const std::vector<DeviceInfo>& known,
                 uint64_t most_bytes) {
    const bool is_auto = to_lower(device.name) == "auto";
    DeviceInfo found, cpu;
    for (const DeviceInfo& info : known) {
        const bool is_cpu = info.name == kCpu;
        cpu = is_cpu ? info : cpu;
        const bool fits = is_auto ? !is_cpu : to_lower(info.name) == to_lower(device.name);
        found = fits && found.name.empty() ? info : found;
    }
    found = found.name.empty() && is_auto ? cpu : found;
    const bool is_limited = most_bytes > 0 && found.name != kCpu;
    return {
        {"name", device.name},
        {"model", device.model},
        {"description", found.description},
        {"memory_bytes", is_limited ? std::min(most_bytes, found.total_bytes) : found.total_bytes},
        {"host_memory_bytes", cpu.total_bytes}};
}

json capabilities_json(Service& service) {
    json devices = json::array();
    const std::vector<DeviceInfo> known = list_devices();
    const uint64_t most_bytes = service.options().model.load.max_device_bytes;
    for (const JobRunner::Device& device : service.runner().devices()) {
        devices.push_back(device_json(device, known, most_bytes));
    }
    json roles = json::array();
    for (const ReferenceRole& role : reference_roles()) {
        roles.push_back({{"word", role.word}, {"sentence", role.sentence}});
    }
    const ServerOptions& options = service.options();
    return {
        {"version", version()},
        {"devices", devices},
        {"reference_roles", roles},
        {"generators", {"cuda", "cuda-f32", "cpu", "cpu-f32"}},
        {"limits",
         {{"side_least", kMinSide},
          {"side_most", kMaxSide},
          {"side_step", kImageGrid},
          {"references", kMaxReferences},
          {"pictures", Pipeline::kMostPictures},
          {"upload_pixels", kMostUploadedPixels},
          {"body_bytes", options.max_body_bytes},
          {"queue", options.queue_size}}},
        {"queue",
         {{"waiting", service.runner().n_queued()}, {"running", service.runner().n_running()}}}};
}

}  // namespace

void add_native(Routes& routes, Service& service) {
    using Request = httplib::Request;
    using Response = httplib::Response;
    add_native_jobs(routes, service);
    add_native_history(routes, service);
    routes.add(
        {.method = "POST",
         .path = "/api/v1/plan",
         .summary = "What a job would take in memory and time. Nothing is made.",
         .fields = &native_fields(),
         .takes_form = true},
        [&](const Request& request, Response& response) { send_plan(service, request, response); });
    routes.add({.method = "POST",
                .path = "/api/v1/picture-settings",
                .summary = "The settings that a picture stores, as fields of a job.",
                .fields = &picture_settings_fields(),
                .takes_form = true},
               [&](const Request& request, Response& response) {
                   send_picture_settings(service, request, response);
               });
    routes.add({.method = "GET",
                .path = "/api/v1/capabilities",
                .summary = "What this server can do, and its limits."},
               [&](const Request&, Response& response) {
                   answer_json(response, capabilities_json(service));
               });
    routes.add(
        {.method = "GET",
         .path = "/api/v1/models",
         .summary = "The models with their defaults, and where they are loaded."},
        [&](const Request&, Response& response) { answer_json(response, models_json(service)); });
    routes.add({.method = "POST",
                .path = "/api/v1/models/load",
                .summary = "Opens a model on a device, in place of the one that is open.",
                .fields = &model_fields()},
               [&](const Request& request, Response& response) {
                   change_model(service, JobKind::load, request, response);
               });
    routes.add({.method = "POST",
                .path = "/api/v1/models/unload",
                .summary = "Frees the memory of a model.",
                .fields = &model_fields()},
               [&](const Request& request, Response& response) {
                   change_model(service, JobKind::unload, request, response);
               });
    routes.add(
        {.method = "GET", .path = "/api/v1/loras", .summary = "The LoRAs that requests may name."},
        [&](const Request&, Response& response) { answer_json(response, loras_json(service)); });
}

}  // namespace flux2::server
