#include "http/connection_threads.hpp"

#include <utility>

namespace flux2::server {

ConnectionThreads::ConnectionThreads(size_t most_threads, size_t most_waiting)
    : most_threads_(most_threads), most_waiting_(most_waiting) {}

bool ConnectionThreads::enqueue(std::function<void()> serve) {
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || waiting_.size() >= most_waiting_) {
            return false;
        }
        waiting_.push_back(std::move(serve));
        if (waiting_.size() > n_idle_ && threads_.size() < most_threads_) {
            threads_.emplace_back([this] { work(); });
        }
    }
    arrived_.notify_one();
    return true;
}

void ConnectionThreads::shutdown() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
    threads_.clear();
}

void ConnectionThreads::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++n_idle_;
        arrived_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
        --n_idle_;
        if (waiting_.empty()) {
            return;
        }
        const std::function<void()> serve = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        serve();
        lock.lock();
    }
}

}  // namespace flux2::server
