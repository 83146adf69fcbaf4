// A progress bar on the terminal during conversion. Prints nothing when stderr is not a terminal.
#pragma once

#include "base/terminal_line.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace flux2::convert {

class Progress {
  public:
    Progress(std::string label, uint64_t total_bytes);

    // May be called often; the line is redrawn about ten times a second.
    void show(uint64_t done_bytes);

  private:
    std::string label_;
    uint64_t total_bytes_;
    std::chrono::steady_clock::time_point start_;
    TerminalLine line_;
};

// "x.gguf  [==========              ] 42 %, 812 MB/s  7.0 s left", for `seconds` of work so far.
std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes,
                          double seconds);

}  // namespace flux2::convert
