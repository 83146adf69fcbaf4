// How downloads are shown: a bar on a terminal, else a line when a file begins and ends and every
// few seconds between.
#pragma once

#include "base/system.hpp"
#include "base/terminal_line.hpp"
#include "common/line_sink.hpp"
#include "downloads/file_download.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace flux2::cli {

class DownloadDisplay {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Nothing is shown, on a terminal neither, when there is no `tell`.
    explicit DownloadDisplay(LineSink tell, bool on_terminal = stderr_is_terminal())
        : tell_(std::move(tell)), line_(on_terminal) {}

    void show(const hub::FileProgress& progress, Time now = std::chrono::steady_clock::now());

  private:
    void begin(const hub::FileProgress& progress, Time now);

    LineSink tell_;
    std::string path_;
    Time start_;
    Time told_;  // the last line
    bool has_ended_ = false;
    TerminalLine line_;
};

// "x.gguf  [==========              ] 1.1 GB of 2.6 GB, 85 MB/s  17.6 s left", after `seconds` of
// it.
std::string download_bar(const hub::FileProgress& progress, double seconds);

// "downloading x.gguf: 1.1 GB of 2.6 GB, 85 MB/s, 17.6 s left", likewise.
std::string download_line(const hub::FileProgress& progress, double seconds);

// "2.6 GB", "336 MB", "12 KB"
std::string readable_bytes(uint64_t bytes);

}  // namespace flux2::cli
