#include "dialects/openai.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "dialects/openai_fields.hpp"
#include "http/base64.hpp"
#include "http/event_stream.hpp"

#include <chrono>

namespace flux2::server {
namespace {

using nlohmann::json;

int64_t unix_time(JobStatus::Time time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

std::string size_of(const json& facts) {
    return concat(facts.at("width").get<int>(), "x", facts.at("height").get<int>());
}

int64_t output_tokens(const JobStatus& status) {
    int64_t n = 0;
    for (const Picture& picture : status.pictures) {
        n += picture.facts.at("width").get<int64_t>() / kImageGrid *
             (picture.facts.at("height").get<int64_t>() / kImageGrid);
    }
    return n;
}

json usage_of(const ImagesRequest& images, const JobStatus& status) {
    const int64_t input = images.n_text_tokens + images.n_image_tokens;
    const int64_t output = output_tokens(status);
    return {{"input_tokens", input},
            {"output_tokens", output},
            {"total_tokens", input + output},
            {"input_tokens_details",
             {{"text_tokens", images.n_text_tokens}, {"image_tokens", images.n_image_tokens}}},
            {"output_tokens_details", {{"image_tokens", output}, {"text_tokens", 0}}}};
}

// The address under which this client reaches the server.
std::string url_of(const Service& service, const httplib::Request& request,
                   const std::string& path) {
    const bool tls = !service.options().tls_certificate.empty() ||
                     request.get_header_value("X-Forwarded-Proto") == "https";
    return concat(tls ? "https://" : "http://", request.get_header_value("Host"), path);
}

json picture_item(Service& service, const httplib::Request& request, const ImagesRequest& images,
                  const Picture& picture) {
    if (images.as_url) {
        return {{"url", url_of(service, request, "/images/" + picture.id + ".png")}};
    }
    return {{"b64_json", to_base64(picture_bytes(service, picture, images.format))}};
}

json answer_of(Service& service, const httplib::Request& request, const ImagesRequest& images,
               const JobStatus& status) {
    json data = json::array();
    for (const Picture& picture : status.pictures) {
        data.push_back(picture_item(service, request, images, picture));
    }
    return {{"created", unix_time(status.ended)},
            {"data", data},
            {"background", "opaque"},
            {"output_format", images.format.word},
            {"quality", images.quality},
            {"size", size_of(status.pictures.front().facts)},
            {"usage", usage_of(images, status)}};
}

// The events of a streamed request: unfinished pictures at evenly spaced steps, then the finished
// ones.
class ImageEvents {
  public:
    ImageEvents(Service& service, ImagesRequest images)
        : service_(service),
          images_(std::move(images)),
          prefix_(images_.kind == ImagesKind::edit ? "image_edit." : "image_generation.") {}

    std::string operator()(const JobStatus& status) {
        if (status.state == JobState::done) {
            return completed(status);
        }
        if (status.has_ended()) {
            return event_text("error", openai_error(service_.error_of(status)));
        }
        return partial(status.progress);
    }

  private:
    json event(const std::string& type, JobStatus::Time time, const std::string& bytes) const {
        return {{"type", prefix_ + type},        {"b64_json", to_base64(bytes)},
                {"created_at", unix_time(time)}, {"background", "opaque"},
                {"quality", images_.quality},    {"output_format", images_.format.word}};
    }

    std::string partial(const JobProgress& progress) {
        const bool is_due =
            n_partial_ < images_.partial_images && progress.preview && progress.n_steps > 0 &&
            progress.step < progress.n_steps &&
            progress.step * (images_.partial_images + 1) >= (n_partial_ + 1) * progress.n_steps;
        if (!is_due) {
            return "";
        }
        const Image& preview = *progress.preview;
        json data = event("partial_image", JobStatus::Time::clock::now(),
                          picture_bytes(preview, images_.format));
        data["partial_image_index"] = n_partial_++;
        data["size"] = concat(preview.width, "x", preview.height);
        return event_text(data["type"], data);
    }

    std::string completed(const JobStatus& status) const {
        std::string texts;
        for (const Picture& picture : status.pictures) {
            json data =
                event("completed", status.ended, picture_bytes(service_, picture, images_.format));
            data["size"] = size_of(picture.facts);
            data["usage"] = usage_of(images_, status);
            texts += event_text(data["type"], data);
        }
        return texts;
    }

    Service& service_;
    ImagesRequest images_;
    std::string prefix_;
    int n_partial_ = 0;
};

void make_images(Service& service, ImagesKind kind, const httplib::Request& request,
                 httplib::Response& response) {
    ImagesRequest images = read_images_request(kind, request, service);
    images.job.origin = response.get_header_value("x-request-id");
    if (images.stream) {
        const auto held = std::make_shared<HeldJob>(service, std::move(images.job));
        stream_events(response, **held, ImageEvents(service, std::move(images)), [held] {});
        return;
    }
    const HeldJob job(service, std::move(images.job));
    answer_json(response, answer_of(service, request, images, job.wait(request)));
}

void list_models(Service& service, httplib::Response& response) {
    json data = json::array();
    for (const ModelEntry& model : service.pool().entries()) {
        data.push_back(
            {{"id", model.name}, {"object", "model"}, {"created", 0}, {"owned_by", "flux2"}});
    }
    answer_json(response, {{"object", "list"}, {"data", data}});
}

void send_picture(Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::string name = request.path_params.at("name");
    const auto png = name.ends_with(".png") ? service.store().png(name.substr(0, name.size() - 4))
                                            : std::nullopt;
    if (!png) {
        throw StatusError(
            404, "picture_not_found",
            concat("there is no picture ", name, "; results leave the store in time"));
    }
    response.set_header("Cache-Control", "private, max-age=31536000, immutable");
    response.set_content(*png, "image/png");
}

}  // namespace

void add_openai(Routes& routes, Service& service) {
    routes.add({.method = "POST",
                .path = "/v1/images/generations",
                .summary = "Makes pictures from a prompt.",
                .fields = &generation_fields()},
               [&](const httplib::Request& request, httplib::Response& response) {
                   make_images(service, ImagesKind::generation, request, response);
               });
    routes.add({.method = "POST",
                .path = "/v1/images/edits",
                .summary = "Edits pictures: references, or a part of the first one.",
                .fields = &edit_fields(),
                .takes_form = true},
               [&](const httplib::Request& request, httplib::Response& response) {
                   make_images(service, ImagesKind::edit, request, response);
               });
    routes.add({.method = "GET", .path = "/v1/models", .summary = "The models of this server."},
               [&](const httplib::Request&, httplib::Response& response) {
                   list_models(service, response);
               });
    routes.add({.method = "GET",
                .path = "/images/:name",
                .summary = "A picture that was made: ID.png.",
                .answer = "image/png"},
               [&](const httplib::Request& request, httplib::Response& response) {
                   send_picture(service, request, response);
               });
}

}  // namespace flux2::server
