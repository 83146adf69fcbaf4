// A progress line on the terminal: share, speed, time left. Silent when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace flux2::convert {

class Progress {
  public:
    Progress(std::string label, uint64_t total_bytes);
    ~Progress();  // clears the line
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // May be called at any rate; the line changes about ten times a second.
    void show(uint64_t done_bytes);

  private:
    std::string label_;
    uint64_t total_bytes_;
    std::chrono::steady_clock::time_point start_;
    std::chrono::steady_clock::time_point shown_;
    bool visible_;
};

// "transformer.gguf  42 %  812 MB/s  0:07 left", for `seconds` of work so far.
std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes,
                          double seconds);

}  // namespace flux2::convert
