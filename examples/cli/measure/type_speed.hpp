// Speed and error of each weight type on this machine.
#pragma once

#include "compute/backend.hpp"

#include <string>
#include <vector>

namespace flux2::cli {

struct TypeSpeed {
    std::string type;
    double bits = 0;   // of a weight
    double flops = 0;  // per second, in a matrix of klein 4B at 256x256
    double error = 0;  // root mean square, relative to that of the (random) weights
};

// The types that flux2-convert writes, the fastest first.
std::vector<TypeSpeed> measure_types(const Backend& backend, bool repacks);

// A table, and which type to choose.
std::string to_text(const std::vector<TypeSpeed>& types);

}  // namespace flux2::cli
