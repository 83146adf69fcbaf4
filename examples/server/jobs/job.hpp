// One unit of work for a device: pictures to make, a plan to compute, a model to open or close.
// Other threads watch it through snapshots.
#pragma once

#include <flux2/flux2.hpp>

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace flux2::server {

enum class JobKind { pictures, plan, load, unload };
enum class JobState { queued, running, done, failed, cancelled };

// "queued", "running", ...
const char* to_string(JobState state);

// What a client asks for. The runner sets the request's cancel flag.
struct JobRequest {
    JobKind kind = JobKind::pictures;
    std::string model;  // a name of the ModelPool
    Request request;
    int n = 1;  // pictures with seeds counted up
    // The images of the pictures stay in the job; else they are only in the ResultStore.
    bool keep_images = false;
    std::string origin = {};  // for logs: the id of the HTTP request
};

// A finished picture. Its file is in the ResultStore under the id.
struct Picture {
    std::string id;
    nlohmann::json facts;  // as stored in the picture
    Timings timings;
    std::shared_ptr<const Image> image = nullptr;  // with JobRequest::keep_images
};

struct JobProgress {
    Stage stage = Stage::load;
    int step = 0, n_steps = 0;           // of denoising
    double share = 0;                    // of the whole job, 0..1
    std::optional<double> seconds_left;  // unset: not known yet
    std::shared_ptr<const Image> preview = nullptr;
    int n_previews = 0;  // how many there were so far
};

// Why a job failed: an Error without its type, so that it can be copied.
struct JobError {
    ErrorKind kind = ErrorKind::internal;
    std::string message;  // as Error::what(), may name files of this machine
};

struct JobStatus {
    using Time = std::chrono::system_clock::time_point;

    JobState state = JobState::queued;
    JobProgress progress;
    std::vector<Picture> pictures;   // those that are finished
    std::optional<MemoryPlan> plan;  // of a JobKind::plan
    std::optional<JobError> error;
    Time created, started, ended;
    uint64_t sequence = 0;  // grows with every change

    bool has_ended() const { return state >= JobState::done; }
};

class Job {
  public:
    Job(std::string id, JobRequest request);
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    const std::string& id() const { return id_; }
    // Without its pictures once the job has ended: these are freed.
    const JobRequest& request() const { return request_; }

    JobStatus status() const;
    // Blocks until the sequence number is another one than `seen`, or the time is over.
    JobStatus wait(uint64_t seen, std::chrono::milliseconds limit) const;
    // Blocks until the job has ended.
    JobStatus wait_end() const;

    // For the runner.
    void change(const std::function<void(JobStatus&)>& edit);
    void request_cancel() { cancel_ = true; }
    bool is_cancel_requested() const { return cancel_; }
    void free_inputs();

  private:
    std::string id_;
    JobRequest request_;
    std::atomic<bool> cancel_ = false;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    JobStatus status_;
};

}  // namespace flux2::server
