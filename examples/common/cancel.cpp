#include "common/cancel.hpp"

#include <flux2/error.hpp>
#include "base/system.hpp"

#include <csignal>
#include <cstdlib>

namespace flux2::cli {

std::atomic<bool> cancel_requested = false;

namespace {

void end_at_once(int) {
    write_to_stderr("flux2: cancelled\n");
    std::_Exit(exit_code(ErrorKind::cancelled));
}

void request_cancel(int) {
    cancel_requested = true;
}

}  // namespace

void end_on_signals() {
    std::signal(SIGINT, end_at_once);
    std::signal(SIGTERM, end_at_once);
}

void cancel_on_signals() {
    std::signal(SIGINT, request_cancel);
    std::signal(SIGTERM, request_cancel);
}

EndsAtOnce::EndsAtOnce()
    : interrupt_(std::signal(SIGINT, end_at_once)), terminate_(std::signal(SIGTERM, end_at_once)) {}

EndsAtOnce::~EndsAtOnce() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGTERM, terminate_);
}

}  // namespace flux2::cli
