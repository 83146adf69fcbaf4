// The requests of A1111's API that are under way, as its clients watch and stop them: they know
// only one, which is the oldest here.
#pragma once

#include "jobs/job_runner.hpp"

#include <list>
#include <mutex>
#include <optional>
#include <string>

namespace flux2::server {

struct A1111Run {
    int n_batches = 1;
    int batch = 0;         // that is made, from 0
    std::string job;       // its id; empty: none yet
    std::string began;     // "20261116181755", UTC
    bool skipped = false;  // the batch that is made
    bool interrupted = false;
};

// Any thread may call its functions.
class A1111Runs {
  public:
    // The oldest; nothing when there is none.
    std::optional<A1111Run> current() const;
    // Ends the batch of the oldest one; the batches after it are still made.
    void skip(JobRunner& runner);
    // Ends the oldest one. What it has made is answered.
    void interrupt(JobRunner& runner);

  private:
    friend class A1111RunEntry;
    void stop(JobRunner& runner, bool A1111Run::*flag);

    mutable std::mutex mutex_;
    std::list<A1111Run> runs_;
};

// One request among them, as long as the object lives. Used by the thread of the request.
class A1111RunEntry {
  public:
    A1111RunEntry(A1111Runs& runs, int n_batches);
    ~A1111RunEntry();
    A1111RunEntry(const A1111RunEntry&) = delete;
    A1111RunEntry& operator=(const A1111RunEntry&) = delete;

    // The next batch is made by this job.
    void begin(int batch, const std::string& job);
    // Whether somebody ended the batch that was made last.
    bool was_stopped() const;
    bool was_interrupted() const;

  private:
    A1111Runs& runs_;
    std::list<A1111Run>::iterator run_;
};

}  // namespace flux2::server
