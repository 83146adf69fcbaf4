// How downloads are shown: a bar on a terminal, else a line when a file begins and ends.
#pragma once

#include "base/terminal_line.hpp"
#include "downloads/file_download.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace flux2::cli {

class DownloadDisplay {
  public:
    explicit DownloadDisplay(bool quiet) : quiet_(quiet) {}

    void show(const hub::FileProgress& progress);

  private:
    bool quiet_;
    std::string path_;
    std::chrono::steady_clock::time_point start_;
    bool has_ended_ = false;
    TerminalLine line_;
};

// "x.gguf  [==========              ] 1.1 of 2.6 GB, 85 MB/s  17.6 s left", after `seconds` of it.
std::string download_line(const hub::FileProgress& progress, double seconds);

// "2.6 GB", "336 MB", "12 KB"
std::string readable_bytes(uint64_t bytes);

}  // namespace flux2::cli
