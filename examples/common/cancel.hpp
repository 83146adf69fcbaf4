// Handling of Ctrl-C and termination. In both modes the exit code is 130.
#pragma once

#include <atomic>

namespace flux2::cli {

// Set by a signal after cancel_on_signals().
extern std::atomic<bool> cancel_requested;

// From now on a signal ends the program at once, in the middle of whatever it does: for work that
// writes no files.
void end_on_signals();

// From now on a signal sets cancel_requested, and the running work stops as soon as it can.
void cancel_on_signals();

// While it exists, a signal ends the program at once: used while waiting for input.
class EndsAtOnce {
  public:
    EndsAtOnce();
    ~EndsAtOnce();
    EndsAtOnce(const EndsAtOnce&) = delete;
    EndsAtOnce& operator=(const EndsAtOnce&) = delete;

  private:
    void (*interrupt_)(int);
    void (*terminate_)(int);
};

}  // namespace flux2::cli
