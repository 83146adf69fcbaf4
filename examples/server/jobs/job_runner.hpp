// Runs jobs: one worker thread for each device, one job at a time on each. Knows nothing of HTTP.
#pragma once

#include "jobs/job.hpp"
#include "jobs/job_queue.hpp"
#include "jobs/model_pool.hpp"
#include "jobs/result_store.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace flux2::server {

struct RunnerOptions {
    std::vector<std::string> devices = {"auto"};
    size_t queue_size = 64;
    size_t kept_jobs = 1000;            // that have ended; older ones are forgotten
    std::chrono::seconds idle_time{0};  // after which a model is closed; 0: never
};

// Any thread may call its functions.
class JobRunner {
  public:
    // Called when a job has ended, before others can see that.
    using Ended = std::function<void(const Job&, const JobStatus&)>;

    // The pool and the store must outlive it.
    JobRunner(const ModelPool& pool, ResultStore& store, const RunnerOptions& options,
              Ended ended = {});
    // Cancels all jobs and waits for the workers.
    ~JobRunner();
    JobRunner(const JobRunner&) = delete;
    JobRunner& operator=(const JobRunner&) = delete;

    // Throws Refused when the queue is full or stop_accepting() was called.
    std::shared_ptr<Job> submit(JobRequest request);
    // Null when there is none, or it was forgotten.
    std::shared_ptr<Job> find(const std::string& id) const;
    // From new to old.
    std::vector<std::shared_ptr<Job>> jobs() const;
    // Ends a waiting job at once and a running one within a block of its networks; a job that has
    // ended stays as it is.
    void cancel(Job& job);
    // Forgets a job that has ended. False for another.
    bool forget(const std::string& id);

    std::optional<size_t> position(const Job& job) const { return queue_.position(job); }
    size_t n_queued() const { return queue_.size(); }
    size_t n_running() const { return n_running_; }
    size_t queue_size() const { return options_.queue_size; }
    // Seconds until a place in a full queue may be free, from the time of recent jobs; 1 to 120.
    int seconds_to_wait() const;

    struct Device {
        std::string name;
        std::string model;  // that is open; empty: none
    };
    std::vector<Device> devices() const;

    void stop_accepting() { accepting_ = false; }
    bool is_accepting() const { return accepting_; }
    // Waits until no job waits or runs. False when the time is over.
    bool wait_idle(std::chrono::milliseconds limit) const;
    void cancel_all();

  private:
    void work(OpenModel& open);
    void run(Job& job, OpenModel& open);
    void make_pictures(Job& job, const ModelEntry& model, Pipeline& pipeline);
    void end(Job& job, JobState state, std::optional<JobError> error = {});
    void remember(const std::shared_ptr<Job>& job);

    const ModelPool& pool_;
    ResultStore& store_;
    RunnerOptions options_;
    Ended ended_;
    JobQueue queue_;
    std::atomic<bool> accepting_ = true;
    std::atomic<size_t> n_running_ = 0;
    std::atomic<double> recent_seconds_ = 1;  // of a job, averaged
    mutable std::mutex mutex_;                // of the jobs
    std::map<std::string, std::shared_ptr<Job>> jobs_;
    std::vector<std::unique_ptr<OpenModel>> open_;
    std::vector<std::thread> workers_;
};

}  // namespace flux2::server
