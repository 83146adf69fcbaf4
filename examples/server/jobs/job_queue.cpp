#include "jobs/job_queue.hpp"

#include <algorithm>
#include <utility>

namespace flux2::server {
namespace {

bool makes_pictures(const std::shared_ptr<Job>& job) {
    return job->request().kind == JobKind::pictures;
}

}  // namespace

Refused::Refused(Reason reason, const std::string& message, int retry_after_seconds)
    : Error(ErrorKind::out_of_memory, message),
      reason_(reason),
      retry_after_seconds_(retry_after_seconds) {}

bool JobQueue::push(std::shared_ptr<Job> job) {
    {
        const std::lock_guard lock(mutex_);
        const auto first = std::find_if(jobs_.begin(), jobs_.end(), makes_pictures);
        if (makes_pictures(job)) {
            if (static_cast<size_t>(jobs_.end() - first) >= most_) {
                return false;
            }
            jobs_.push_back(std::move(job));
        } else {
            jobs_.insert(first, std::move(job));
        }
    }
    arrived_.notify_one();
    return true;
}

std::shared_ptr<Job> JobQueue::pop(std::chrono::milliseconds limit, std::atomic<size_t>& n_taken) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, limit, [&] { return closed_ || !jobs_.empty(); });
    if (jobs_.empty()) {
        return nullptr;
    }
    std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    ++n_taken;
    return job;
}

bool JobQueue::remove(const Job& job) {
    const std::lock_guard lock(mutex_);
    return std::erase_if(jobs_, [&](const auto& waiting) { return waiting.get() == &job; }) > 0;
}

std::optional<size_t> JobQueue::position(const Job& job) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                    [&](const auto& waiting) { return waiting.get() == &job; });
    return found == jobs_.end() ? std::nullopt
                                : std::optional(static_cast<size_t>(found - jobs_.begin()));
}

size_t JobQueue::size() const {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
}

void JobQueue::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    arrived_.notify_all();
}

bool JobQueue::is_closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
}

}  // namespace flux2::server
