// A warning about pictures larger than the models were made for.
#pragma once

#include "pipeline/request.hpp"

#include <cstdint>
#include <string>

namespace flux2 {

// What the makers of FLUX.2 give as its largest resolution: 4 megapixels, such as 2048x2048.
constexpr int64_t kMadeForPixels = 2048 * 2048;

// A line for the user; empty for pictures within that, and for those that are refused.
std::string size_warning(const Job& job);

}  // namespace flux2
