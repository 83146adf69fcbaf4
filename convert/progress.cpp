#include "progress.hpp"

#include "base/check.hpp"
#include "base/progress_bar.hpp"

#include <algorithm>
#include <utility>

namespace flux2::convert {

Progress::Progress(std::string label, uint64_t total_bytes)
    : label_(std::move(label)),
      total_bytes_(total_bytes),
      start_(std::chrono::steady_clock::now()) {}

void Progress::show(uint64_t done_bytes) {
    line_.show([&] {
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
        return progress_line(label_, done_bytes, total_bytes_, elapsed.count());
    });
}

std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes,
                          double seconds) {
    const auto done = static_cast<double>(done_bytes);
    const double share = done / static_cast<double>(std::max<uint64_t>(total_bytes, 1));
    const auto megabytes_per_second = static_cast<int64_t>(done / std::max(seconds, 1e-3) / 1e6);
    return progress_bar(
        label, share, concat(static_cast<int>(100 * share), " %, ", megabytes_per_second, " MB/s"),
        seconds);
}

}  // namespace flux2::convert
