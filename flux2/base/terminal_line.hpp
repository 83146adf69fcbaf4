// A status line on the terminal that is redrawn while a program works.
#pragma once

#include "base/system.hpp"

#include <chrono>
#include <iostream>

namespace flux2 {

// On standard error; nothing is shown when that is no terminal.
class TerminalLine {
  public:
    explicit TerminalLine(bool terminal = stderr_is_terminal()) : terminal_(terminal) {}
    ~TerminalLine() { clear(); }
    TerminalLine(const TerminalLine&) = delete;
    TerminalLine& operator=(const TerminalLine&) = delete;

    bool on_terminal() const { return terminal_; }

    // Shows what `text` returns. May be called often: `text` is called at most ten times a second.
    template <typename Text>
    void show(const Text& text) {
        constexpr auto kBetween = std::chrono::milliseconds(100);
        const auto now = std::chrono::steady_clock::now();
        if (terminal_ && now - shown_ >= kBetween) {
            shown_ = now;
            stands_ = true;
            std::cerr << "\r\033[K" << text() << std::flush;
        }
    }
    // The next text is shown immediately.
    void hurry() { shown_ = {}; }
    void clear() {
        if (stands_) {
            std::cerr << "\r\033[K" << std::flush;
            stands_ = false;
        }
    }

  private:
    bool terminal_;
    bool stands_ = false;
    std::chrono::steady_clock::time_point shown_;
};

}  // namespace flux2
