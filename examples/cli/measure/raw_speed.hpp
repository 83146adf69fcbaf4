// How fast this machine multiplies matrices of given shapes when it does nothing else: what a
// network can reach at best.
#pragma once

#include "compute/backend.hpp"
#include "measure/flops.hpp"

#include <optional>

namespace flux2::cli {

// Seconds that the multiplies of `work` would take one after another at raw speed. Shapes that make
// up less than a hundredth of them are not timed but taken to be as fast as the rest. Nothing when
// there are none, or none that the device can multiply or has memory for. `repacks`: matrices lie
// in the layout that a CPU multiplies fastest, where it has one.
std::optional<double> raw_seconds(const Backend& backend, const Work& work, bool repacks);

}  // namespace flux2::cli
