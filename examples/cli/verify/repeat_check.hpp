// flux2 selftest --ops on NVIDIA GPUs: products that several algorithms compute in turn.
#pragma once

#include "verify/recording.hpp"

#include "compute/backend.hpp"

namespace flux2::cli {

// Multiplies large matrices as often as compute/cuda/large_products tries algorithms, and expects
// the same bits each time.
void check_repeated_products(const Backend& backend, Report& report);

}  // namespace flux2::cli
