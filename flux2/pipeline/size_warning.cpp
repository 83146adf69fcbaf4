#include "pipeline/size_warning.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"

#include <algorithm>
#include <cmath>

namespace flux2 {

std::string size_warning(const Job& job) {
    const int64_t pixels = int64_t{job.width} * job.height;
    if (pixels <= kMadeForPixels || std::max(job.width, job.height) > kMaxSide) {
        return "";
    }
    const double megapixels = std::round(static_cast<double>(pixels) / 1e5) / 10;
    return concat("a picture of ", job.width, "x", job.height, " has ", megapixels,
                  " megapixels, and FLUX.2 was made for up to 4 (2048x2048): things may appear "
                  "twice or lose their shape; make a smaller picture and enlarge it afterwards");
}

}  // namespace flux2
