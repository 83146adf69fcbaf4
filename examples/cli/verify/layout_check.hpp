// flux2 selftest --ops --device CPU: matrices of every type in every layout that this CPU has.
#pragma once

#include "verify/recording.hpp"

#include "common/random_values.hpp"
#include "compute/backend.hpp"

namespace flux2::cli {

// Multiplies in every layout (plain, repacked by ggml for its AMX and other kernels, in our
// own tiles) and compares with sums in double over the same rounded weights. The backend's device
// must be the CPU.
void check_weight_layouts(const Backend& backend, RandomValues& random, Report& report);

}  // namespace flux2::cli
