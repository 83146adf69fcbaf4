// What Ctrl-C and termination do to the program. Either way it ends with exit code 130.
#pragma once

#include <atomic>

namespace flux2::cli {

// Raised by a signal after cancel_on_signals().
extern std::atomic<bool> cancel_requested;

// From now on a signal ends the program at once, in the middle of whatever it does: for work that
// writes no files.
void end_on_signals();

// From now on a signal raises cancel_requested, and the work ends itself as soon as it can.
void cancel_on_signals();

// While it lives, a signal ends the program at once: nothing is being made, somebody types.
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
