#include "http/service.hpp"

#include "base/check.hpp"
#include "http/client_connection.hpp"
#include "http/log_line.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

namespace flux2::server {
namespace {

using namespace std::chrono_literals;

// How often it is checked whether a waiting client is still there.
constexpr auto kClientCheck = 50ms;

// Clients send these to every server that speaks OpenAI's API.
bool is_openai_name(const std::string& name) {
    return name.starts_with("gpt-image") || name.starts_with("dall-e") ||
           name.starts_with("chatgpt-image");
}

std::vector<std::string> split_devices(const std::string& list) {
    std::vector<std::string> devices;
    std::istringstream in(list);
    for (std::string device; std::getline(in, device, ',');) {
        devices.push_back(device);
    }
    return devices;
}

double seconds_of(const JobStatus& status) {
    return std::chrono::duration<double>(status.ended - status.created).count();
}

}  // namespace

Service::Service(const ServerOptions& options)
    : options_(options), store_(options.output_folder, options.results) {}

void Service::start() {
    const std::vector<std::string> devices = split_devices(options_.model.load.device);
    check(!devices.empty(), ErrorKind::bad_argument, "--device is empty; leave it out");
    cli::ModelOptions model = options_.model;
    model.load.device = devices.front();
    cli::LineSink tell;
    if (!options_.quiet) {
        tell = [](const std::string& line) { log_line(LogLevel::info, "model", {{"text", line}}); };
    }
    pool_ = std::make_unique<ModelPool>(model, options_.models_folder, tell);
    RunnerOptions runner;
    runner.devices = devices;
    runner.queue_size = options_.queue_size;
    runner.idle_time = options_.idle_time;
    runner_ = std::make_unique<JobRunner>(
        *pool_, store_, runner, [this](const Job& job, const JobStatus& status) {
            metrics_.count_job(status);
            if (!options_.quiet) {
                log_line(LogLevel::info, "job",
                         {{"id", job.id()},
                          {"request", job.request().origin},
                          {"state", to_string(status.state)},
                          {"pictures", std::to_string(status.pictures.size())},
                          {"seconds", concat(seconds_of(status))},
                          {"error", status.error ? status.error->message : "-"}});
            }
        });
    is_ready_ = true;
}

const ModelEntry& Service::model(const std::string& name) const {
    const ModelEntry* found = pool_->find(name);
    if (found == nullptr && is_openai_name(name)) {
        found = pool_->find("");
    }
    if (found == nullptr) {
        std::string names;
        for (const ModelEntry& entry : pool_->entries()) {
            names += (names.empty() ? "" : ", ") + entry.name;
        }
        throw StatusError(404, "model_not_found",
                          concat("there is no model '", name, "'; this server has ", names));
    }
    return *found;
}

Adapter Service::lora(const std::string& name, float strength) const {
    if (options_.lora_folder.empty()) {
        throw FieldError("lora", "this server offers no LoRA; start it with --lora-dir FOLDER");
    }
    try {
        Adapter adapter;
        adapter.file = cli::LoraFolder(options_.lora_folder).find(name);
        adapter.strength = strength;
        return adapter;
    } catch (const Error& error) {
        throw FieldError("lora", pool_->without_folders(error.what()));
    }
}

std::vector<AdapterInfo> Service::loras() const {
    std::vector<AdapterInfo> loras;
    if (!options_.lora_folder.empty()) {
        const cli::LoraFolder folder(options_.lora_folder);
        for (const std::string& name : folder.names()) {
            try {
                loras.push_back(inspect_adapter(folder.find(name)));
            } catch (const Error&) {
                // A model, or an adapter for another one.
            }
        }
    }
    return loras;
}

HttpError Service::error_of(const JobStatus& status) const {
    HttpError error = http_error(status);
    error.message = pool_->without_folders(error.message);
    return error;
}

HeldJob::HeldJob(Service& service, JobRequest request)
    : service_(service), job_(service.runner().submit(std::move(request))) {
    ++service_.n_held_jobs_;
}

HeldJob::~HeldJob() {
    if (!service_.runner().forget(job_->id())) {
        service_.runner().cancel(*job_);
        job_->wait_end();
        service_.runner().forget(job_->id());
    }
    --service_.n_held_jobs_;
}

JobStatus HeldJob::wait(const httplib::Request& request) const {
    JobStatus status = job_->status();
    auto checked = std::chrono::steady_clock::now();
    while (!status.has_ended()) {
        status = job_->wait(status.sequence, kClientCheck);
        if (const auto now = std::chrono::steady_clock::now(); now - checked >= kClientCheck) {
            checked = now;
            if (client_is_gone(request)) {
                service_.runner().cancel(*job_);
                status = job_->wait_end();
            }
        }
    }
    if (status.state != JobState::done) {
        throw AnswerError(service_.error_of(status));
    }
    return status;
}

}  // namespace flux2::server
