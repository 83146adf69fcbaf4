#include "http/metrics.hpp"

#include "base/system.hpp"
#include "base/text_stream.hpp"

namespace flux2::server {
namespace {

void head(std::ostream& out, const char* name, const char* type, const char* help) {
    out << "# HELP " << name << " " << help << "\n# TYPE " << name << " " << type << "\n";
}

template <typename Value>
void single(std::ostream& out, const char* name, const char* type, const char* help, Value value) {
    head(out, name, type, help);
    out << name << " " << value << "\n";
}

template <typename Value>
void labelled(std::ostream& out, const char* name, const char* help, const char* label,
              const std::map<std::string, Value>& values) {
    head(out, name, "counter", help);
    for (const auto& [key, value] : values) {
        out << name << "{" << label << "=\"" << key << "\"} " << value << "\n";
    }
}

}  // namespace

void Metrics::count_request(const std::string& route, int status) {
    const std::lock_guard lock(mutex_);
    ++requests_[{route, status}];
}

void Metrics::count_refusal(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    ++refusals_[reason];
}

void Metrics::count_job(const JobStatus& status) {
    const std::lock_guard lock(mutex_);
    ++jobs_[to_string(status.state)];
    n_pictures_ += status.pictures.size();
    for (const Picture& picture : status.pictures) {
        const Timings& timings = picture.timings;
        stage_seconds_["load"] += timings.load;
        stage_seconds_["encode_prompt"] += timings.encode_prompt;
        stage_seconds_["encode_references"] += timings.encode_references;
        stage_seconds_["denoise"] += timings.denoise;
        stage_seconds_["decode"] += timings.decode;
    }
}

std::string Metrics::text(const JobRunner& runner, const ResultStore& store) const {
    TextStream out;
    single(out, "flux2_queue_length", "gauge", "Jobs that wait.", runner.n_queued());
    single(out, "flux2_queue_limit", "gauge", "Jobs that may wait.", runner.queue_size());
    single(out, "flux2_jobs_running", "gauge", "Jobs that run.", runner.n_running());
    single(out, "flux2_memory_bytes", "gauge", "Anonymous memory of the process.",
           own_memory_bytes());
    single(out, "flux2_results", "gauge", "Pictures in the results folder.", store.size());
    const std::lock_guard lock(mutex_);
    single(out, "flux2_pictures_total", "counter", "Pictures made.", n_pictures_);
    labelled(out, "flux2_jobs_total", "Jobs that ended, by state.", "state", jobs_);
    labelled(out, "flux2_stage_seconds_total", "Seconds of the stages of pictures.", "stage",
             stage_seconds_);
    labelled(out, "flux2_refusals_total", "Requests that were not accepted, by reason.", "reason",
             refusals_);
    head(out, "flux2_http_requests_total", "counter", "Requests by route and status.");
    for (const auto& [key, value] : requests_) {
        out << "flux2_http_requests_total{route=\"" << key.first << "\",status=\"" << key.second
            << "\"} " << value << "\n";
    }
    return out.str();
}

}  // namespace flux2::server
