// What the server counts, as the text that Prometheus reads.
#pragma once

#include "jobs/job.hpp"
#include "jobs/job_runner.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace flux2::server {

// Any thread may call its functions.
class Metrics {
  public:
    void count_request(const std::string& route, int status);
    // A request that was not accepted: "queue_full", "invalid_api_key", ...
    void count_refusal(const std::string& reason);
    void count_job(const JobStatus& status);

    std::string text(const JobRunner& runner, const ResultStore& store) const;

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, uint64_t> requests_;
    std::map<std::string, uint64_t> refusals_;
    std::map<std::string, uint64_t> jobs_;
    std::map<std::string, double> stage_seconds_;
    uint64_t n_pictures_ = 0;
};

}  // namespace flux2::server
