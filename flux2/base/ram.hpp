// The RAM that this process can have: the machine's, lowered by limits of containers and `ulimit`.
#pragma once

#include "base/system.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

// 0 where the system does not tell.
struct Ram {
    uint64_t total = 0;      // the machine's, or the lowest limit
    uint64_t available = 0;  // what can be allocated without swapping, and within all limits
    uint64_t most = 0;       // that this process can hold, with what it holds now
    std::string why_most;    // "this machine has 16.00 GB"
};

// `own_bytes` is what the process holds, which a limit counts as used.
Ram lower_ram(const MachineMemory& machine, uint64_t own_bytes,
              const std::vector<MemoryLimit>& limits);

// Asks the system.
Ram process_ram();
// Of that, what is available.
uint64_t available_ram_bytes();

}  // namespace flux2
