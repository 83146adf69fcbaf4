// A progress bar as text.
#pragma once

#include <string>

namespace flux2 {

// "denoising  [============            ] 2/4  12.0 s left". `detail` follows the bar; the time left
// is computed from the share that is done, 0..1, and the seconds so far.
std::string progress_bar(const std::string& label, double share, const std::string& detail,
                         double seconds);

// "1.2 s", "3:05 min"
std::string readable_seconds(double seconds);

}  // namespace flux2
