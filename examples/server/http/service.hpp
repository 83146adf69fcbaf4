// What the dialects share: the models, the jobs, the results, and what is counted.
#pragma once

#include "common/lora_tags.hpp"
#include "http/answer.hpp"
#include "http/metrics.hpp"
#include "http/server_options.hpp"
#include "jobs/job_runner.hpp"
#include "jobs/model_pool.hpp"
#include "jobs/result_store.hpp"

#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace flux2::server {

class Service {
  public:
    // Creates the folder of results. Throws bad_file.
    explicit Service(const ServerOptions& options);

    // Opens the models and starts the workers. The functions below may be called after it.
    void start();
    bool is_ready() const { return is_ready_; }

    const ServerOptions& options() const { return options_; }
    const ModelPool& pool() const { return *pool_; }
    ResultStore& store() { return store_; }
    JobRunner& runner() { return *runner_; }
    Metrics& metrics() { return metrics_; }

    // The model that a request names. OpenAI's own names and an empty one mean the first. Throws
    // StatusError 404.
    const ModelEntry& model(const std::string& name) const;
    // The LoRA of this name in the folder of LoRAs. Throws FieldError.
    Adapter lora(const std::string& name, float strength) const;
    // Those that can be used, with what their headers say.
    std::vector<AdapterInfo> loras() const;

    // Why a job failed, without folders of this machine.
    HttpError error_of(const JobStatus& status) const;
    // Answers that wait for their job or tell about it.
    size_t n_held_jobs() const { return n_held_jobs_; }

  private:
    friend class HeldJob;

    ServerOptions options_;
    Metrics metrics_;
    ResultStore store_;
    std::unique_ptr<ModelPool> pool_;
    std::unique_ptr<JobRunner> runner_;
    std::atomic<bool> is_ready_ = false;
    std::atomic<size_t> n_held_jobs_ = 0;
};

// The job of one HTTP request: the runner forgets it together with this object. If it has not ended
// by then it is cancelled.
class HeldJob {
  public:
    // Submits it. Throws Refused.
    HeldJob(Service& service, JobRequest request);
    ~HeldJob();
    HeldJob(const HeldJob&) = delete;
    HeldJob& operator=(const HeldJob&) = delete;

    const Job& operator*() const { return *job_; }
    const Job* operator->() const { return job_.get(); }
    // Blocks until the job has ended; cancels it when the client closes its connection. Throws
    // AnswerError when it was not done.
    JobStatus wait(const httplib::Request& request) const;

  private:
    Service& service_;
    std::shared_ptr<Job> job_;
};

}  // namespace flux2::server
