#include "progress.hpp"

#include "base/system.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>

namespace flux2::convert {
namespace {

constexpr std::chrono::milliseconds kPause(100);

}  // namespace

Progress::Progress(std::string label, uint64_t total_bytes)
    : label_(std::move(label)),
      total_bytes_(total_bytes),
      start_(std::chrono::steady_clock::now()),
      shown_(start_),
      visible_(stderr_is_terminal()) {}

Progress::~Progress() {
    if (visible_) {
        std::cerr << "\r\033[K" << std::flush;
    }
}

void Progress::show(uint64_t done_bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (!visible_ || now - shown_ < kPause) {
        return;
    }
    shown_ = now;
    const std::chrono::duration<double> elapsed = now - start_;
    std::cerr << "\r\033[K" << progress_line(label_, done_bytes, total_bytes_, elapsed.count())
              << std::flush;
}

std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes,
                          double seconds) {
    const double share =
        static_cast<double>(done_bytes) / static_cast<double>(std::max<uint64_t>(total_bytes, 1));
    const double bytes_per_second = static_cast<double>(done_bytes) / std::max(seconds, 1e-3);
    std::ostringstream line;
    line << label << "  " << std::setw(3) << static_cast<int>(100 * share) << " %  "
         << static_cast<int64_t>(bytes_per_second / 1e6) << " MB/s";
    if (done_bytes > 0) {
        const auto left = static_cast<int64_t>(
            std::ceil(static_cast<double>(total_bytes - done_bytes) / bytes_per_second));
        line << "  " << left / 60 << ":" << std::setw(2) << std::setfill('0') << left % 60
             << " left";
    }
    return line.str();
}

}  // namespace flux2::convert
