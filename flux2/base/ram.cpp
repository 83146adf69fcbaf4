#include "base/ram.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"

#include <algorithm>

namespace flux2 {
namespace {

// 0 is no number of bytes, neither as a limit nor before.
uint64_t lower(uint64_t bytes, uint64_t limit) {
    limit = std::max<uint64_t>(limit, 1);
    return bytes == 0 ? limit : std::min(bytes, limit);
}

std::string sentence(const MemoryLimit& limit, uint64_t most) {
    const bool is_group = limit.name.starts_with("memory.");
    return concat(is_group ? "this container" : "this process", " may use ", gigabytes(limit.bytes),
                  " (", limit.name, "), of which ", gigabytes(most), " are left");
}

}  // namespace

Ram lower_ram(const MachineMemory& machine, uint64_t own_bytes,
              const std::vector<MemoryLimit>& limits) {
    Ram ram = {machine.total, machine.available, machine.total,
               concat("this machine has ", gigabytes(machine.total))};
    for (const MemoryLimit& limit : limits) {
        const uint64_t most = lower(ram.most, limit.left + own_bytes);
        if (most != ram.most) {
            ram.why_most = sentence(limit, most);
        }
        ram.total = lower(ram.total, limit.bytes);
        ram.available = lower(ram.available, limit.left);
        ram.most = most;
    }
    return ram;
}

Ram process_ram() {
    return lower_ram(machine_memory(), own_memory_bytes(), process_memory_limits());
}

uint64_t available_ram_bytes() {
    return process_ram().available;
}

}  // namespace flux2
