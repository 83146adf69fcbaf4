#include "common/download_display.hpp"

#include "base/check.hpp"
#include "base/progress_bar.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

namespace flux2::cli {
namespace {

std::string name_of(const hub::FileProgress& progress) {
    return progress.path.substr(progress.path.rfind('/') + 1);
}

}  // namespace

std::string readable_bytes(uint64_t bytes) {
    const auto n = static_cast<double>(bytes);
    std::ostringstream text;
    if (n >= 1e9) {
        text << std::fixed << std::setprecision(1) << n / 1e9 << " GB";
    } else if (n >= 1e6) {
        text << (bytes + 500'000) / 1'000'000 << " MB";
    } else {
        text << (bytes + 999) / 1000 << " KB";
    }
    return text.str();
}

std::string download_line(const hub::FileProgress& progress, double seconds) {
    const double rate =
        static_cast<double>(progress.done - progress.begun) / std::max(seconds, 1e-3);
    const std::string speed = readable_bytes(static_cast<uint64_t>(rate)) + "/s";
    if (!progress.size) {
        return concat(name_of(progress), "  ", readable_bytes(progress.done), ", ", speed);
    }
    const auto size = static_cast<double>(std::max<uint64_t>(*progress.size, 1));
    const double share = static_cast<double>(progress.done) / size;
    // The bar tells the time left from the seconds that all of it took so far: at this rate.
    const double as_if = rate > 0 ? static_cast<double>(progress.done) / rate : 0;
    return progress_bar(
        name_of(progress), rate > 0 ? share : 0,
        concat(readable_bytes(progress.done), " of ", readable_bytes(*progress.size), ", ", speed),
        as_if);
}

void DownloadDisplay::show(const hub::FileProgress& progress) {
    if (quiet_) {
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (progress.path != path_) {
        path_ = progress.path;
        start_ = now;
        has_ended_ = false;
        line_.hurry();
        if (!line_.on_terminal()) {
            std::cerr << "downloading " << name_of(progress)
                      << (progress.size ? ", " + readable_bytes(*progress.size) : "")
                      << (progress.begun > 0 ? ", continued at " + readable_bytes(progress.begun)
                                             : "")
                      << std::endl;
        }
    }
    const double seconds = std::chrono::duration<double>(now - start_).count();
    if (progress.size && progress.done == *progress.size && !has_ended_) {
        has_ended_ = true;
        line_.clear();
        std::cerr << "downloaded " << name_of(progress) << ", " << readable_bytes(progress.done)
                  << " in " << readable_seconds(seconds) << std::endl;
    } else if (!has_ended_) {
        line_.show([&] { return download_line(progress, seconds); });
    }
}

}  // namespace flux2::cli
