// How a picture's progress reaches the caller.
#pragma once

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "compute/backend.hpp"
#include "pipeline/loaded_model.hpp"

#include <atomic>
#include <functional>
#include <utility>

namespace flux2 {

// Passes steps on to the caller's callback; turns its "no", and the request's flag, into an Error.
class Reporter {
  public:
    // Borrows both.
    Reporter(const Request& request, const Progress& progress)
        : cancel_(request.cancel), progress_(progress) {}

    void report(const Step& step) const {
        check_cancel();
        check(!progress_ || progress_(step), ErrorKind::cancelled, "cancelled");
        check_cancel();
    }
    void check_cancel() const {
        check(cancel_ == nullptr || !*cancel_, ErrorKind::cancelled, "cancelled");
    }

  private:
    const std::atomic<bool>* cancel_;
    const Progress& progress_;
};

// Lets a request's flag end what the parts do while it lives.
class CancelWatch {
  public:
    CancelWatch(LoadedModel& loaded_model, const Request& request) : loaded_model_(loaded_model) {
        loaded_model_.set_cancel(request.cancel);
    }
    ~CancelWatch() { loaded_model_.set_cancel(nullptr); }
    CancelWatch(const CancelWatch&) = delete;
    CancelWatch& operator=(const CancelWatch&) = delete;

  private:
    LoadedModel& loaded_model_;
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
    LoadWatch(LoadedModel& loaded_model, const Reporter& reporter) : loaded_model_(loaded_model) {
        loaded_model_.set_on_load([&reporter](Part part) {
            reporter.report({.stage = Stage::load, .what = to_string(part)});
        });
    }
    ~LoadWatch() { loaded_model_.set_on_load({}); }
    LoadWatch(const LoadWatch&) = delete;
    LoadWatch& operator=(const LoadWatch&) = delete;

  private:
    LoadedModel& loaded_model_;
};

}  // namespace flux2
