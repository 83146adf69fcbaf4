// Where the time of a network goes: seconds per kind of operation and per shape.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace flux2::cli {

class Profile {
  public:
    void add(const ggml_tensor& result, double seconds);
    // A line per kind of operation, the slowest first, each followed by its shapes. Shapes that
    // take less than a hundredth of all are left out.
    std::string to_text() const;

  private:
    struct Cost {
        int64_t count = 0;
        double seconds = 0;
        double flops = 0;  // of matrix multiplies, convolutions and attention
        double bytes = 0;  // read and written

        void add(const Cost& other);
    };

    std::map<std::string, std::map<std::string, Cost>> kinds_;  // shapes of each kind
};

// A line: how many operations run on the CPU, and what is copied at each computation.
std::string to_text(const GraphPlacement& placement);

}  // namespace flux2::cli
