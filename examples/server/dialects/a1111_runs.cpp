#include "dialects/a1111_runs.hpp"

#include <chrono>
#include <memory>

namespace flux2::server {
namespace {

std::string time_stamp() {
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    const auto day = std::chrono::floor<std::chrono::days>(now);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(now - day);
    const auto two_digits = [](auto value) {
        const std::string text = std::to_string(value);
        return text.size() < 2 ? "0" + text : text;
    };
    return std::to_string(static_cast<int>(date.year())) +
           two_digits(static_cast<unsigned>(date.month())) +
           two_digits(static_cast<unsigned>(date.day())) + two_digits(time.hours().count()) +
           two_digits(time.minutes().count()) + two_digits(time.seconds().count());
}

}  // namespace

std::optional<A1111Run> A1111Runs::current() const {
    const std::lock_guard lock(mutex_);
    return runs_.empty() ? std::nullopt : std::optional(runs_.front());
}

void A1111Runs::skip(JobRunner& runner) {
    stop(runner, &A1111Run::skipped);
}

void A1111Runs::interrupt(JobRunner& runner) {
    stop(runner, &A1111Run::interrupted);
}

void A1111Runs::stop(JobRunner& runner, bool A1111Run::*flag) {
    std::shared_ptr<Job> job;
    {
        const std::lock_guard lock(mutex_);
        if (!runs_.empty()) {
            runs_.front().*flag = true;
            job = runner.find(runs_.front().job);
        }
    }
    if (job) {
        runner.cancel(*job);
    }
}

A1111RunEntry::A1111RunEntry(A1111Runs& runs, int n_batches) : runs_(runs) {
    const std::lock_guard lock(runs_.mutex_);
    A1111Run run;
    run.n_batches = n_batches;
    run.began = time_stamp();
    run_ = runs_.runs_.insert(runs_.runs_.end(), run);
}

A1111RunEntry::~A1111RunEntry() {
    const std::lock_guard lock(runs_.mutex_);
    runs_.runs_.erase(run_);
}

void A1111RunEntry::begin(int batch, const std::string& job) {
    const std::lock_guard lock(runs_.mutex_);
    run_->batch = batch;
    run_->job = job;
    run_->skipped = false;
}

bool A1111RunEntry::was_stopped() const {
    const std::lock_guard lock(runs_.mutex_);
    return run_->skipped || run_->interrupted;
}

bool A1111RunEntry::was_interrupted() const {
    const std::lock_guard lock(runs_.mutex_);
    return run_->interrupted;
}

}  // namespace flux2::server
