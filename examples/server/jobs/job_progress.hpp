// Turns the steps that the library reports into the progress of a job.
#pragma once

#include "jobs/job.hpp"

#include <chrono>

namespace flux2::server {

// Used by the thread that runs the job.
class ProgressReport {
  public:
    explicit ProgressReport(Job& job);
    void step(const Step& step);

  private:
    Job& job_;
    std::chrono::steady_clock::time_point begun_;
};

// How much of a picture is done when `share` of a stage is, 0..1.
double share_of_picture(Stage stage, double share);

}  // namespace flux2::server
