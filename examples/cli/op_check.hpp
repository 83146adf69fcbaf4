// flux2 selftest --ops: every operation of our own on a device against its plain C++ form on the
// CPU and against ggml's operations, on random and on hostile shapes.
#pragma once

#include "recording.hpp"

#include <string>

namespace flux2::cli {

// On the CPU there is no kernel to compare, so the plain form is compared with ggml's alone.
void check_operations(const std::string& device, Report& report);

}  // namespace flux2::cli
