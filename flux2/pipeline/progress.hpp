// How a picture's progress reaches the caller.
#pragma once

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "compute/backend.hpp"
#include "pipeline/parts.hpp"

#include <functional>
#include <utility>

namespace flux2 {

// Passes steps on to the caller's callback and turns its "no" into an Error.
class Reporter {
  public:
    explicit Reporter(const Progress& progress) : progress_(progress) {}

    void report(const Step& step) const {
        check(!progress_ || progress_(step), ErrorKind::cancelled, "cancelled");
    }

  private:
    const Progress& progress_;
};

// Hands the progress of computations on while it lives; then whoever had it before gets it again.
class BlockWatch {
  public:
    BlockWatch(Backend& backend, std::function<void(double share)> on_share)
        : backend_(backend), before_(backend.on_progress()) {
        backend_.set_on_progress(std::move(on_share));
    }
    ~BlockWatch() { backend_.set_on_progress(std::move(before_)); }
    BlockWatch(const BlockWatch&) = delete;
    BlockWatch& operator=(const BlockWatch&) = delete;

  private:
    Backend& backend_;
    std::function<void(double share)> before_;
};

// Tells what is being loaded while it lives.
class LoadWatch {
  public:
    LoadWatch(Parts& parts, const Reporter& reporter) : parts_(parts) {
        parts_.set_on_load([&reporter](Part part) {
            reporter.report({.stage = Stage::load, .what = to_string(part)});
        });
    }
    ~LoadWatch() { parts_.set_on_load({}); }
    LoadWatch(const LoadWatch&) = delete;
    LoadWatch& operator=(const LoadWatch&) = delete;

  private:
    Parts& parts_;
};

}  // namespace flux2
