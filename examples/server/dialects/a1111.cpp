// Follows modules/api of stable-diffusion-webui in names and forms.
#include "dialects/a1111.hpp"

#include "base/check.hpp"
#include "dialects/a1111_fields.hpp"
#include "dialects/a1111_info.hpp"
#include "dialects/a1111_lists.hpp"
#include "dialects/a1111_runs.hpp"
#include "http/base64.hpp"
#include "http/log_line.hpp"
#include "http/picture_fields.hpp"
#include "http/uploads.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr const char* kModelOption = "sd_model_checkpoint";
constexpr double kLeastProgress = 0.01;  // of a request that has begun, as in A1111

json a1111_error(const HttpError& error) {
    return {
        {"error", error.type}, {"detail", error.message}, {"body", ""}, {"errors", error.message}};
}

std::string base64_of(const std::vector<std::byte>& bytes) {
    return to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

const FieldTable& progress_fields() {
    static const FieldTable table = {
        {"skip_current_image", FieldKind::boolean, "whether the unfinished picture is left out"}};
    return table;
}

const FieldTable& option_fields() {
    static const FieldTable table = {
        {kModelOption, FieldKind::text, "the model of requests that name none", 0, 200}};
    return table;
}

const FieldTable& png_info_fields() {
    static const FieldTable table = {
        {"image", FieldKind::text, "a picture in base64", 0, 0, {}, true}};
    return table;
}

// What the routes share.
class A1111 {
  public:
    explicit A1111(Service& service) : service_(service) {}

    void make_pictures(A1111Kind kind, const httplib::Request& request,
                       httplib::Response& response) {
        const A1111Request asked = read_a1111_request(kind, request, service_, chosen_model());
        tell_ignored(asked);
        const std::vector<Picture> pictures =
            run_batches(asked, request, response.get_header_value("x-request-id"));
        json images = json::array();
        for (const Picture& picture : pictures) {
            if (asked.send_images) {
                images.push_back(to_base64(picture_bytes(service_, picture, {})));
            }
        }
        answer_json(response, {{"images", images},
                               {"parameters", asked.parameters},
                               {"info", to_text(a1111_info(asked, pictures))}});
    }

    void answer_progress(const httplib::Request& request, httplib::Response& response) {
        const std::string skip = request.get_param_value("skip_current_image");
        const bool with_picture = skip.empty() || skip == "false" || skip == "False" || skip == "0";
        const auto run = runs_.current();
        const auto job = run ? service_.runner().find(run->job) : nullptr;
        const JobStatus status = job ? job->status() : JobStatus{};
        answer_json(response, progress_of(run, status, with_picture));
    }

    void answer_options(httplib::Response& response) {
        const std::string title = chosen_model();
        const ModelEntry& model = a1111_model(service_, title);
        const std::string hash = service_.pool().hash(model);
        answer_json(response, {{kModelOption, model.name},
                               {"sd_checkpoint_hash", hash},
                               {"sd_vae", "Automatic"},
                               {"samples_format", "png"},
                               {"CLIP_stop_at_last_layers", 1},
                               {"live_previews_enable", true},
                               {"show_progress_every_n_steps", 1}});
    }

    // Takes a part of the options or all of them; only the model can be set.
    void set_options(const httplib::Request& request, httplib::Response& response) {
        const RequestFields fields =
            RequestFields::from_json(option_fields(), parse_body(request.body));
        if (fields.has(kModelOption)) {
            const std::string name = a1111_model(service_, fields.text(kModelOption)).name;
            const std::lock_guard lock(mutex_);
            model_ = name;
        }
        answer_json(response, nullptr);
    }

    void answer_root(httplib::Response& response) {
        answer_json(response, {{"model", a1111_model(service_, chosen_model()).name},
                               {"server", "flux2"},
                               {"version", version()}});
    }

    void skip() { runs_.skip(service_.runner()); }
    void interrupt() { runs_.interrupt(service_.runner()); }

  private:
    std::string chosen_model() const {
        const std::lock_guard lock(mutex_);
        return model_;
    }

    void tell_ignored(const A1111Request& asked) {
        if (!asked.ignored.empty() && !service_.options().quiet && !told_.exchange(true)) {
            log_line(LogLevel::warning, "ignored", {{"what", asked.ignored}});
        }
    }

    // One job for each batch, so that a batch can be skipped. After an interruption the pictures
    // that are finished.
    std::vector<Picture> run_batches(const A1111Request& asked, const httplib::Request& request,
                                     const std::string& origin) {
        std::vector<Picture> pictures;
        A1111RunEntry entry(runs_, asked.n_batches);
        for (int batch = 0; batch < asked.n_batches && !entry.was_interrupted(); ++batch) {
            JobRequest next = asked.job;
            next.request.seed = *asked.job.request.seed + static_cast<uint64_t>(batch * next.n);
            next.origin = origin;
            const HeldJob job(service_, std::move(next));
            entry.begin(batch, job->id());
            if (entry.was_interrupted()) {
                break;
            }
            try {
                job.wait(request);
            } catch (const AnswerError&) {
                if (!entry.was_stopped()) {
                    throw;
                }
            }
            const std::vector<Picture> finished = job->status().pictures;
            pictures.insert(pictures.end(), finished.begin(), finished.end());
        }
        return pictures;
    }

    static json progress_of(const std::optional<A1111Run>& run, const JobStatus& status,
                            bool with_picture) {
        const A1111Run shown = run.value_or(A1111Run{});
        const JobProgress& progress = status.progress;
        const double batches_left = shown.n_batches - shown.batch - progress.share;
        const double share = run ? (shown.batch + progress.share) / shown.n_batches : 0;
        const double seconds = progress.share < 1 && progress.seconds_left
                                   ? *progress.seconds_left * batches_left / (1 - progress.share)
                                   : 0;
        json picture;
        if (with_picture && progress.preview) {
            picture = base64_of(encode_image(*progress.preview));
        }
        return {
            {"progress", run ? std::max(share, kLeastProgress) : 0.0},
            {"eta_relative", seconds},
            {"state",
             {{"skipped", shown.skipped},
              {"interrupted", shown.interrupted},
              {"stopping_generation", false},
              {"job", run ? concat("Batch ", shown.batch + 1, " out of ", shown.n_batches) : ""},
              {"job_count", run ? shown.n_batches : 0},
              {"job_timestamp", run ? shown.began : "0"},
              {"job_no", shown.batch},
              {"sampling_step", progress.step},
              {"sampling_steps", progress.n_steps}}},
            {"current_image", picture},
            {"textinfo", nullptr}};
    }

    Service& service_;
    A1111Runs runs_;
    mutable std::mutex mutex_;
    std::string model_;  // chosen by a client; empty: the first
    std::atomic<bool> told_ = false;
};

}  // namespace

void add_a1111(Routes& routes, Service& service) {
    const auto api = std::make_shared<A1111>(service);
    using Request = httplib::Request;
    using Response = httplib::Response;
    const auto add = [&](const Route& route, httplib::Server::Handler handler) {
        routes.add(route, std::move(handler), a1111_error);
    };
    add({.method = "POST",
         .path = "/sdapi/v1/txt2img",
         .summary = "Makes pictures from a prompt.",
         .fields = &txt2img_fields()},
        [api](const Request& request, Response& response) {
            api->make_pictures(A1111Kind::txt2img, request, response);
        });
    add({.method = "POST",
         .path = "/sdapi/v1/img2img",
         .summary = "Changes a picture, or repaints a part of it.",
         .fields = &img2img_fields()},
        [api](const Request& request, Response& response) {
            api->make_pictures(A1111Kind::img2img, request, response);
        });
    add({.method = "GET",
         .path = "/sdapi/v1/progress",
         .summary = "How far the oldest request of this API is.",
         .fields = &progress_fields()},
        [api](const Request& request, Response& response) {
            api->answer_progress(request, response);
        });
    add({.method = "POST",
         .path = "/sdapi/v1/interrupt",
         .summary = "Ends the oldest request of this API; what it has made is answered."},
        [api](const Request&, Response& response) {
            api->interrupt();
            answer_json(response, json::object());
        });
    add({.method = "POST",
         .path = "/sdapi/v1/skip",
         .summary = "Leaves out the batch that this request is making."},
        [api](const Request&, Response& response) {
            api->skip();
            answer_json(response, json::object());
        });
    add({.method = "GET", .path = "/sdapi/v1/options", .summary = "Settings of the server."},
        [api](const Request&, Response& response) { api->answer_options(response); });
    add({.method = "POST",
         .path = "/sdapi/v1/options",
         .summary = "Chooses the model of requests that name none.",
         .fields = &option_fields()},
        [api](const Request& request, Response& response) { api->set_options(request, response); });
    add({.method = "POST",
         .path = "/sdapi/v1/png-info",
         .summary = "The settings that a picture stores.",
         .fields = &png_info_fields()},
        [](const Request& request, Response& response) {
            const RequestFields fields =
                RequestFields::from_json(png_info_fields(), parse_body(request.body));
            answer_json(response, a1111_png_info(file_from_text("image", fields.text("image"))));
        });
    add({.method = "GET",
         .path = "/",
         .summary = "Which model is used, for clients of Draw Things."},
        [api](const Request&, Response& response) { api->answer_root(response); });
    add_a1111_lists(routes, service, a1111_error);
}

}  // namespace flux2::server
