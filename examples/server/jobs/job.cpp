#include "jobs/job.hpp"

#include <utility>

namespace flux2::server {

const char* to_string(JobState state) {
    switch (state) {
        case JobState::queued:
            return "queued";
        case JobState::running:
            return "running";
        case JobState::done:
            return "done";
        case JobState::failed:
            return "failed";
        case JobState::cancelled:
            break;
    }
    return "cancelled";
}

Job::Job(std::string id, JobRequest request) : id_(std::move(id)), request_(std::move(request)) {
    request_.request.cancel = &cancel_;
    status_.created = std::chrono::system_clock::now();
}

JobStatus Job::status() const {
    const std::lock_guard lock(mutex_);
    return status_;
}

JobStatus Job::wait(uint64_t seen, std::chrono::milliseconds limit) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return status_.sequence != seen; });
    return status_;
}

JobStatus Job::wait_end() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return status_.has_ended(); });
    return status_;
}

void Job::change(const std::function<void(JobStatus&)>& edit) {
    {
        const std::lock_guard lock(mutex_);
        edit(status_);
        ++status_.sequence;
    }
    changed_.notify_all();
}

void Job::free_inputs() {
    request_.request.references = {};
    request_.request.init.reset();
    request_.request.inpaint.reset();
}

}  // namespace flux2::server
