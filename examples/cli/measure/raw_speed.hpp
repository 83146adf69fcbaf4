// How fast this machine multiplies matrices of given shapes alone: the upper limit for a network.
#pragma once

#include "compute/backend.hpp"
#include "compute/graph_work.hpp"

#include <optional>

namespace flux2::cli {

// Seconds that the multiplies of `work` would take one after another at raw speed. Shapes that make
// up less than a hundredth of them are not timed but taken to be as fast as the rest. Nothing when
// there are none, or none that the device can multiply or has memory for. `repacks`: matrices are
// repacked into the layout that the CPU multiplies fastest, if it has one.
std::optional<double> raw_seconds(const Backend& backend, const GraphWork& work, bool repacks);

}  // namespace flux2::cli
