// flux2 selftest --ops: every operation of our own on a device against its plain C++ form on the
// CPU and against ggml's operations, on random and on extreme shapes and values.
#pragma once

#include "verify/recording.hpp"

#include <string>

namespace flux2::cli {

// On the CPU the forms that compute/cpu has for the CPU at hand are compared with ggml's, and
// matrices are multiplied in every type and layout (layout_check).
// n_threads 0: one per physical core.
void check_operations(const std::string& device, int n_threads, Report& report);

// The plain forms of the kernels against ggml's operations, which needs no device.
void check_plain_forms(Report& report);

}  // namespace flux2::cli
