#include "base/check.hpp"
#include "base/utf8.hpp"
#include "dialects/native.hpp"
#include "dialects/native_fields.hpp"
#include "dialects/native_repeat.hpp"
#include "http/base64.hpp"
#include "http/event_stream.hpp"
#include "http/picture_fields.hpp"

#include <chrono>

namespace flux2::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// Between two events that only tell how far a stage is.
constexpr auto kLeastInterval = 100ms;
constexpr double kMostListed = 1000;

int64_t milliseconds(JobStatus::Time time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

json picture_json(const Service& service, const Picture& picture) {
    const Timings& timings = picture.timings;
    json body = repeat_of_facts(service, picture.facts);
    body["id"] = picture.id;
    body["seconds"] = {{"load", timings.load},
                       {"encode_prompt", timings.encode_prompt},
                       {"encode_references", timings.encode_references},
                       {"denoise", timings.denoise},
                       {"decode", timings.decode}};
    body["url"] = "/images/" + picture.id + ".png";
    body["thumbnail"] = "/api/v1/history/" + picture.id + "/thumbnail";
    body["settings"] = picture.facts;
    return body;
}

json progress_json(const JobProgress& progress) {
    return {{"stage", to_string(progress.stage)},
            {"step", progress.step},
            {"steps", progress.n_steps},
            {"share", progress.share},
            {"seconds_left", progress.seconds_left ? json(*progress.seconds_left) : json()}};
}

json job_json(Service& service, const Job& job, const JobStatus& status) {
    const auto time_or_null = [](JobStatus::Time time) {
        return time == JobStatus::Time() ? json() : json(milliseconds(time));
    };
    json body = {{"id", job.id()},
                 {"state", to_string(status.state)},
                 {"model", job.request().model},
                 {"prompt", job.request().request.prompt},
                 {"n", job.request().n},
                 {"progress", progress_json(status.progress)},
                 {"created", milliseconds(status.created)},
                 {"started", time_or_null(status.started)},
                 {"ended", time_or_null(status.ended)},
                 {"queue_position", nullptr},
                 {"pictures", json::array()},
                 {"error", nullptr}};
    if (const auto position = service.runner().position(job)) {
        body["queue_position"] = *position;
    }
    for (const Picture& picture : status.pictures) {
        body["pictures"].push_back(picture_json(service, picture));
    }
    if (status.state == JobState::failed) {
        body["error"] = openai_error(service.error_of(status))["error"];
    }
    return body;
}

std::shared_ptr<Job> find_job(Service& service, const httplib::Request& request) {
    const std::string& id = request.path_params.at("id");
    std::shared_ptr<Job> job = service.runner().find(id);
    if (!job || job->request().kind != JobKind::pictures) {
        throw StatusError(404, "job_not_found",
                          concat("there is no job ", utf8_start(id, 40),
                                 "; it may have been deleted, or the server was started anew"));
    }
    return job;
}

void submit_job(Service& service, const httplib::Request& request, httplib::Response& response) {
    JobRequest asked = read_native_request(request, service);
    asked.origin = response.get_header_value("x-request-id");
    const std::shared_ptr<Job> job = service.runner().submit(std::move(asked));
    response.set_header("Location", "/api/v1/jobs/" + job->id());
    answer_json(response, job_json(service, *job, job->status()), 202);
}

const FieldTable& list_fields() {
    static const FieldTable table = {
        {"limit", FieldKind::integer, "how many, from new to old", 1, kMostListed}};
    return table;
}

void list_jobs(Service& service, const httplib::Request& request, httplib::Response& response) {
    const RequestFields fields = RequestFields::from_query(list_fields(), request.params);
    auto left = static_cast<size_t>(fields.integer("limit").value_or(100));
    json jobs = json::array();
    for (const std::shared_ptr<Job>& job : service.runner().jobs()) {
        if (left > 0 && job->request().kind == JobKind::pictures) {
            jobs.push_back(job_json(service, *job, job->status()));
            --left;
        }
    }
    answer_json(response, {{"jobs", jobs}});
}

// Events of a job: "job" whenever its state changes or a picture is finished, "progress" in
// between.
class JobEvents {
  public:
    JobEvents(Service& service, std::shared_ptr<Job> job)
        : service_(service), job_(std::move(job)) {}

    std::string operator()(const JobStatus& status) {
        const auto now = std::chrono::steady_clock::now();
        const bool is_new =
            !any_ || status.state != state_ || status.pictures.size() != n_pictures_;
        const bool has_step =
            status.progress.step != step_ || status.progress.n_previews != n_previews_;
        if (!is_new && !has_step && now - sent_ < kLeastInterval) {
            return "";
        }
        const bool has_preview =
            status.progress.preview && status.progress.n_previews != n_previews_;
        any_ = true;
        state_ = status.state;
        n_pictures_ = status.pictures.size();
        step_ = status.progress.step;
        n_previews_ = status.progress.n_previews;
        sent_ = now;
        return is_new ? event_text("job", job_json(service_, *job_, status))
                      : progress_event(status, has_preview);
    }

  private:
    static std::string progress_event(const JobStatus& status, bool has_preview) {
        json data = progress_json(status.progress);
        data["time"] = milliseconds(JobStatus::Time::clock::now());
        if (has_preview) {
            const Image& preview = *status.progress.preview;
            const PictureFormat jpeg = picture_format("jpeg");
            data["preview"] = {{"width", preview.width},
                               {"height", preview.height},
                               {"type", jpeg.mime},
                               {"b64_json", to_base64(picture_bytes(preview, jpeg))}};
        }
        return event_text("progress", data);
    }

    Service& service_;
    std::shared_ptr<Job> job_;
    bool any_ = false;
    JobState state_ = JobState::queued;
    size_t n_pictures_ = 0;
    int step_ = 0, n_previews_ = 0;
    std::chrono::steady_clock::time_point sent_;
};

void send_events(Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::shared_ptr<Job> job = find_job(service, request);
    stream_events(response, *job, JobEvents(service, job), [job] {});
}

void send_result(Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::shared_ptr<Job> job = find_job(service, request);
    const JobStatus status = job->status();
    if (!status.has_ended()) {
        throw StatusError(409, "job_not_ended",
                          concat("the job ", job->id(), " is ", to_string(status.state),
                                 "; wait for its end by its events"));
    }
    if (status.state != JobState::done) {
        throw AnswerError(service.error_of(status));
    }
    json pictures = json::array();
    for (const Picture& picture : status.pictures) {
        pictures.push_back(picture_json(service, picture));
    }
    answer_json(response, {{"id", job->id()}, {"pictures", pictures}});
}

void cancel_job(Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::shared_ptr<Job> job = find_job(service, request);
    service.runner().cancel(*job);
    answer_json(response, job_json(service, *job, job->status()));
}

void delete_job(Service& service, const httplib::Request& request, httplib::Response& response) {
    const std::shared_ptr<Job> job = find_job(service, request);
    service.runner().cancel(*job);
    job->wait_end();
    service.runner().forget(job->id());
    answer_json(response, {{"id", job->id()}, {"deleted", true}});
}

}  // namespace

void add_native_jobs(Routes& routes, Service& service) {
    using Request = httplib::Request;
    using Response = httplib::Response;
    routes.add({.method = "POST",
                .path = "/api/v1/jobs",
                .summary = "Submits a job that makes pictures; answers 202 with the job.",
                .fields = &native_fields(),
                .takes_form = true},
               [&](const Request& request, Response& response) {
                   submit_job(service, request, response);
               });
    routes.add(
        {.method = "GET",
         .path = "/api/v1/jobs",
         .summary = "The jobs, from new to old.",
         .fields = &list_fields()},
        [&](const Request& request, Response& response) { list_jobs(service, request, response); });
    routes.add({.method = "GET",
                .path = "/api/v1/jobs/:id",
                .summary = "A job: its state, place in the queue, progress, pictures, error."},
               [&](const Request& request, Response& response) {
                   const auto job = find_job(service, request);
                   answer_json(response, job_json(service, *job, job->status()));
               });
    routes.add({.method = "GET",
                .path = "/api/v1/jobs/:id/events",
                .summary = "Events while it runs: job when its state changes, progress between.",
                .answer = "text/event-stream"},
               [&](const Request& request, Response& response) {
                   send_events(service, request, response);
               });
    routes.add({.method = "GET",
                .path = "/api/v1/jobs/:id/result",
                .summary = "The pictures of a job that is done."},
               [&](const Request& request, Response& response) {
                   send_result(service, request, response);
               });
    routes.add({.method = "POST",
                .path = "/api/v1/jobs/:id/cancel",
                .summary = "Cancels a job; one that has ended stays as it is."},
               [&](const Request& request, Response& response) {
                   cancel_job(service, request, response);
               });
    routes.add({.method = "DELETE",
                .path = "/api/v1/jobs/:id",
                .summary = "Cancels and forgets a job. Its pictures stay in the history."},
               [&](const Request& request, Response& response) {
                   delete_job(service, request, response);
               });
}

}  // namespace flux2::server
