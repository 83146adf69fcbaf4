#include "common/download_display.hpp"

#include "base/check.hpp"
#include "base/progress_bar.hpp"
#include "base/text_stream.hpp"

#include <algorithm>
#include <iomanip>

namespace flux2::cli {
namespace {

std::string name_of(const hub::FileProgress& progress) {
    return progress.path.substr(progress.path.rfind('/') + 1);
}

// Bytes per second.
double rate_of(const hub::FileProgress& progress, double seconds) {
    return static_cast<double>(progress.done - progress.begun) / std::max(seconds, 1e-3);
}

// "1.1 GB of 2.6 GB, 85 MB/s"
std::string amount_of(const hub::FileProgress& progress, double rate) {
    return concat(readable_bytes(progress.done),
                  progress.size ? " of " + readable_bytes(*progress.size) : "", ", ",
                  readable_bytes(static_cast<uint64_t>(rate)), "/s");
}

}  // namespace

std::string readable_bytes(uint64_t bytes) {
    const auto n = static_cast<double>(bytes);
    TextStream text;
    if (n >= 1e9) {
        text << std::fixed << std::setprecision(1) << n / 1e9 << " GB";
    } else if (n >= 1e6) {
        text << (bytes + 500'000) / 1'000'000 << " MB";
    } else {
        text << (bytes + 999) / 1000 << " KB";
    }
    return text.str();
}

std::string download_bar(const hub::FileProgress& progress, double seconds) {
    const double rate = rate_of(progress, seconds);
    if (!progress.size) {
        return concat(name_of(progress), "  ", amount_of(progress, rate));
    }
    const auto size = static_cast<double>(std::max<uint64_t>(*progress.size, 1));
    const double share = static_cast<double>(progress.done) / size;
    // The bar tells the time left from the seconds that all of it took so far: at this rate.
    const double as_if = rate > 0 ? static_cast<double>(progress.done) / rate : 0;
    return progress_bar(name_of(progress), rate > 0 ? share : 0, amount_of(progress, rate), as_if);
}

std::string download_line(const hub::FileProgress& progress, double seconds) {
    const double rate = rate_of(progress, seconds);
    std::string line = concat("downloading ", name_of(progress), ": ", amount_of(progress, rate));
    if (progress.size && rate > 0) {
        const auto left = static_cast<double>(*progress.size - progress.done);
        line += concat(", ", readable_seconds(left / rate), " left");
    }
    return line;
}

void DownloadDisplay::begin(const hub::FileProgress& progress, Time now) {
    path_ = progress.path;
    start_ = now;
    told_ = now;
    has_ended_ = false;
    line_.hurry();
    if (!line_.on_terminal()) {
        tell_(concat("downloading ", name_of(progress),
                     progress.size ? ", " + readable_bytes(*progress.size) : "",
                     progress.begun > 0 ? ", continued at " + readable_bytes(progress.begun) : ""));
    }
}

void DownloadDisplay::show(const hub::FileProgress& progress, Time now) {
    constexpr auto kBetweenLines = std::chrono::seconds(5);
    if (!tell_) {
        return;
    }
    if (progress.path != path_) {
        begin(progress, now);
    }
    if (has_ended_) {
        return;
    }
    const double seconds = std::chrono::duration<double>(now - start_).count();
    if (progress.size && progress.done == *progress.size) {
        has_ended_ = true;
        line_.clear();
        tell_(concat("downloaded ", name_of(progress), ", ", readable_bytes(progress.done), " in ",
                     readable_seconds(seconds)));
    } else if (line_.on_terminal()) {
        line_.show([&] { return download_bar(progress, seconds); });
    } else if (now - told_ >= kBetweenLines) {
        told_ = now;
        tell_(download_line(progress, seconds));
    }
}

}  // namespace flux2::cli
