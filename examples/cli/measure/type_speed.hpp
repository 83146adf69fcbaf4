// Speed and error of each weight type on this machine.
#pragma once

#include "compute/backend.hpp"

#include <cstdint>
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

// A table, and the fastest types by their error.
std::string to_text(const std::vector<TypeSpeed>& types);

// What a type is proposed for.
struct TypeNeed {
    std::string model;  // as people call it
    int64_t n_weights = 0;
    uint64_t usable_bytes = 0;  // of the device's memory; 0: not known

    uint64_t bytes_of(const TypeSpeed& type) const;
};

struct TypeProposal {
    TypeSpeed type;
    TypeSpeed fastest;  // of those that fit
    bool fits = true;   // false: no type does, and this is the smallest
};

// The fastest type whose weights fit into memory, or a more precise one that is at most 5 % slower.
// Types that change more than details of pictures are proposed only where no other fits. There must
// be a type.
TypeProposal propose_type(const std::vector<TypeSpeed>& types, const TypeNeed& need);

// A line that says so.
std::string to_text(const TypeProposal& proposal, const TypeNeed& need);

}  // namespace flux2::cli
