// Jobs that wait for a device: bounded, in order of arrival.
#pragma once

#include "jobs/job.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace flux2::server {

// A job that is not accepted now. The client may try again after some seconds.
class Refused : public Error {
  public:
    enum class Reason { queue_full, stopping };
    Refused(Reason reason, const std::string& message, int retry_after_seconds);
    Reason reason() const { return reason_; }
    int retry_after_seconds() const { return retry_after_seconds_; }

  private:
    Reason reason_;
    int retry_after_seconds_;
};

class JobQueue {
  public:
    explicit JobQueue(size_t most) : most_(most) {}

    // Jobs that make pictures wait at the end, the others, which take little time, before them.
    // Returns false when there are `most` already, of which only those that make pictures count.
    bool push(std::shared_ptr<Job> job);
    // Waits for a job; null when the time is over or the queue is closed and empty. `n_taken` is
    // counted up together with taking it, so that a watcher never sees a job nowhere.
    std::shared_ptr<Job> pop(std::chrono::milliseconds limit, std::atomic<size_t>& n_taken);
    // Takes a waiting job out. False when it does not wait any more.
    bool remove(const Job& job);
    // How many jobs come before this one; nothing when it does not wait.
    std::optional<size_t> position(const Job& job) const;
    size_t size() const;
    // From now on pop() does not wait.
    void close();
    bool is_closed() const;

  private:
    size_t most_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<std::shared_ptr<Job>> jobs_;
    bool closed_ = false;
};

}  // namespace flux2::server
