// Threads that serve connections. That of the HTTP library lets a connection wait behind others
// that arrive at the same time, for as long as a picture takes.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace flux2::server {

// A thread is started for each connection that finds no idle one, up to `most_threads`; they stay.
class ConnectionThreads final : public httplib::TaskQueue {
  public:
    // At most `most_waiting` connections wait when all threads are busy; more are closed.
    ConnectionThreads(size_t most_threads, size_t most_waiting);

    bool enqueue(std::function<void()> serve) override;
    // Waits for the connections that are served.
    void shutdown() override;

  private:
    void work();

    size_t most_threads_, most_waiting_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<std::function<void()>> waiting_;
    size_t n_idle_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace flux2::server
