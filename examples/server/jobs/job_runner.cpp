#include "jobs/job_runner.hpp"

#include "base/check.hpp"
#include "base/out_of_threads.hpp"
#include "jobs/job_progress.hpp"
#include "jobs/picture_source.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace flux2::server {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::system_clock;

constexpr int kLongestRetrySeconds = 120;  // what clients honour in retry-after

double seconds_between(Clock::time_point from, Clock::time_point until) {
    return std::chrono::duration<double>(until - from).count();
}

}  // namespace

JobRunner::JobRunner(const ModelPool& pool, ResultStore& store, const RunnerOptions& options,
                     Ended ended)
    : pool_(pool),
      store_(store),
      options_(options),
      ended_(std::move(ended)),
      queue_(options.queue_size) {
    for (const std::string& device : options_.devices) {
        open_.push_back(std::make_unique<OpenModel>(pool_, device));
    }
    for (const auto& open : open_) {
        workers_.emplace_back([this, &open] { work(*open); });
    }
}

JobRunner::~JobRunner() {
    stop_accepting();
    cancel_all();
    queue_.close();
    for (std::thread& worker : workers_) {
        worker.join();
    }
}

std::shared_ptr<Job> JobRunner::submit(JobRequest request) {
    if (!accepting_) {
        throw Refused(Refused::Reason::stopping, "the server is stopping; send it to another one",
                      seconds_to_wait());
    }
    auto job = std::make_shared<Job>(new_id(), std::move(request));
    remember(job);
    if (!queue_.push(job)) {
        const std::lock_guard lock(mutex_);
        jobs_.erase(job->id());
        throw Refused(Refused::Reason::queue_full,
                      concat("the queue is full: ", options_.queue_size,
                             " requests wait already; try again later"),
                      seconds_to_wait());
    }
    return job;
}

std::shared_ptr<Job> JobRunner::find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Job>> JobRunner::jobs() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Job>> all;
    for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) {
        all.push_back(at->second);
    }
    return all;
}

void JobRunner::cancel(Job& job) {
    job.request_cancel();
    if (queue_.remove(job)) {
        end(job, JobState::cancelled);
    }
}

bool JobRunner::forget(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || !found->second->status().has_ended()) {
        return false;
    }
    jobs_.erase(found);
    return true;
}

int JobRunner::seconds_to_wait() const {
    const double seconds = recent_seconds_ / static_cast<double>(open_.size());
    return static_cast<int>(std::clamp(std::ceil(seconds), 1.0, double{kLongestRetrySeconds}));
}

std::vector<JobRunner::Device> JobRunner::devices() const {
    std::vector<Device> devices;
    for (const auto& open : open_) {
        devices.push_back({open->device(), open->name()});
    }
    return devices;
}

bool JobRunner::wait_idle(std::chrono::milliseconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (n_queued() > 0 || n_running() > 0) {
        if (std::chrono::steady_clock::now() >= end) {
            return false;
        }
        std::this_thread::sleep_for(10ms);
    }
    return true;
}

void JobRunner::cancel_all() {
    for (const std::shared_ptr<Job>& job : jobs()) {
        cancel(*job);
    }
}

// Also forgets the oldest jobs that have ended.
void JobRunner::remember(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    jobs_[job->id()] = job;
    const size_t most = options_.kept_jobs + options_.queue_size + open_.size();
    for (auto at = jobs_.begin(); jobs_.size() > most && at != jobs_.end();) {
        at = at->second->status().has_ended() ? jobs_.erase(at) : std::next(at);
    }
}

void JobRunner::work(OpenModel& open) {
    const auto limit = options_.idle_time.count() > 0
                           ? std::chrono::milliseconds(options_.idle_time)
                           : std::chrono::milliseconds(1h);
    for (;;) {
        const std::shared_ptr<Job> job = queue_.pop(limit, n_running_);
        if (job) {
            run(*job, open);
            --n_running_;
        } else if (queue_.is_closed()) {
            return;
        } else if (options_.idle_time.count() > 0) {
            open.close();
        }
    }
}

void JobRunner::run(Job& job, OpenModel& open) {
    if (job.is_cancel_requested()) {
        end(job, JobState::cancelled);
        return;
    }
    job.change([](JobStatus& status) {
        status.state = JobState::running;
        status.started = Clock::now();
    });
    const JobRequest& request = job.request();
    try {
        const ModelEntry* model = pool_.find(request.model);
        check(model != nullptr, ErrorKind::bad_argument, "there is no model ", request.model);
        if (request.kind == JobKind::unload) {
            if (open.name() == model->name) {
                open.close();
            }
        } else if (Pipeline& pipeline = open.open(*model); request.kind == JobKind::pictures) {
            make_pictures(job, *model, pipeline);
        } else if (request.kind == JobKind::plan) {
            MemoryPlan plan = pipeline.plan(request.request, request.n);
            job.change([&](JobStatus& status) { status.plan = std::move(plan); });
        }
        end(job, JobState::done);
    } catch (const Error& error) {
        const bool cancelled = error.kind() == ErrorKind::cancelled;
        end(job, cancelled ? JobState::cancelled : JobState::failed,
            JobError{error.kind(), error.what()});
    } catch (const std::bad_alloc&) {
        end(job, JobState::failed, JobError{ErrorKind::out_of_memory, "out of memory"});
    } catch (const std::exception& error) {
        end(job, JobState::failed,
            is_out_of_threads(error) ? JobError{ErrorKind::out_of_memory, kOutOfThreads}
                                     : JobError{ErrorKind::internal, error.what()});
    }
}

void JobRunner::make_pictures(Job& job, const ModelEntry& model, Pipeline& pipeline) {
    ProgressReport report(job);
    const auto keep = [&](Result result) {
        Request made = job.request().request;
        made.seed = result.seed;
        Picture picture;
        picture.facts = facts_of(model, pool_.load_options(), pipeline, made, result);
        picture.timings = result.timings;
        picture.id = store_.add(result.image, picture.facts);
        if (job.request().keep_images) {
            picture.image = std::make_shared<const Image>(std::move(result.image));
        }
        job.change([&](JobStatus& status) { status.pictures.push_back(std::move(picture)); });
    };
    const auto report_step = [&](const Step& step) {
        report.step(step);
        return true;
    };
    pipeline.generate_several(job.request().request, job.request().n, keep, report_step);
}

void JobRunner::end(Job& job, JobState state, std::optional<JobError> error) {
    job.free_inputs();
    JobStatus status = job.status();
    status.state = state;
    status.error = std::move(error);
    status.ended = Clock::now();
    status.progress.preview.reset();
    if (state == JobState::done) {
        status.progress.share = 1;
        status.progress.seconds_left = 0;
    }
    if (state == JobState::done && job.request().kind == JobKind::pictures) {
        constexpr double kShareOfNew = 0.2;
        recent_seconds_ = (1 - kShareOfNew) * recent_seconds_ +
                          kShareOfNew * seconds_between(status.started, status.ended);
    }
    if (ended_) {
        ended_(job, status);
    }
    // Last: who waits for the end finds everything else done.
    job.change([&](JobStatus& shown) { shown = std::move(status); });
}

}  // namespace flux2::server
