#include "base/progress_bar.hpp"
#include "base/text_stream.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>

namespace flux2 {

std::string progress_bar(const std::string& label, double share, const std::string& detail,
                         double seconds) {
    constexpr int kWidth = 24;
    const double done = std::clamp(share, 0.0, 1.0);
    const int filled = static_cast<int>(std::lround(done * kWidth));
    TextStream line;
    line << label << "  [" << std::string(static_cast<size_t>(filled), '=')
         << std::string(static_cast<size_t>(kWidth - filled), ' ') << "]";
    if (!detail.empty()) {
        line << " " << detail;
    }
    if (done > 0) {
        line << "  " << readable_seconds(seconds * (1 - done) / done) << " left";
    }
    return line.str();
}

std::string readable_seconds(double seconds) {
    TextStream text;
    if (seconds < 60) {
        text << std::fixed << std::setprecision(1) << seconds << " s";
    } else {
        const auto whole = static_cast<int64_t>(seconds);
        text << whole / 60 << ":" << std::setw(2) << std::setfill('0') << whole % 60 << " min";
    }
    return text.str();
}

}  // namespace flux2
