// Reports the progress of a picture to the caller.
#pragma once

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "compute/backend.hpp"
#include "pipeline/loaded_model.hpp"

#include <atomic>
#include <functional>
#include <utility>

namespace flux2 {

// Calls the caller's callback; throws cancelled when it returns false or the request's flag is set.
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

// While it exists, a request's cancel flag stops loading and computing.
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

// Reports the progress of computations while it exists; the destructor restores the previous
// callback.
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

// Reports what is being loaded while it exists.
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
