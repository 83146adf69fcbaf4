// How much memory jobs may take, and whether what they take on each device stays below it.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/device.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace flux2 {

struct MemoryLimits {
    uint64_t device = 0;  // for weights and computation; without effect on a CPU
    uint64_t host = 0;
    // Of the RAM that is free now: before they take more, autoencoders compute in bands.
    uint64_t free_host = std::numeric_limits<uint64_t>::max();
    // Of single devices by name, in place of `device`.
    std::map<std::string, uint64_t> devices = {};
    std::string why_host = {};  // what sets `host`: "this machine has 16.00 GB"

    uint64_t of(const std::string& name) const {
        const auto found = devices.find(name);
        return found == devices.end() ? device : found->second;
    }
};

// How much of a device's free memory a job may plan with: all of it where a lack of memory ends
// with an error; elsewhere a 32nd stays free, since ggml would end the program.
uint64_t usable_bytes(uint64_t free_bytes, const DeviceAbilities& device);
// The same of a device, lowered to what may be used of it (LoadOptions::max_device_bytes), 0 for
// all. `held_bytes` are in use by networks that are freed when necessary. Throws backend when it
// was lost.
uint64_t usable_bytes(const Device& device, uint64_t held_bytes, uint64_t max_bytes);
// The same of free RAM: a 16th, and at least half a gigabyte, stays for what plans do not count and
// for other programs.
uint64_t usable_ram_bytes(uint64_t free_bytes);

// The largest number from 1 to `most` that suits, found by halves: what is above one that does not
// suit does not either. 1 suits and is not asked, unless it is all.
template <typename Suits>
int largest_suitable(int most, const Suits& suits) {
    if (suits(most)) {
        return most;
    }
    int least = 1;
    while (most - least > 1) {
        const int middle = least + (most - least) / 2;
        (suits(middle) ? least : most) = middle;
    }
    return least;
}

// What jobs take, by device.
void add_bytes(std::vector<DevicePeak>& devices, const std::string& device, uint64_t bytes);
// Makes each at least as large as in `other`.
void raise_to(std::vector<DevicePeak>& devices, const std::vector<DevicePeak>& other);
uint64_t largest(const std::vector<DevicePeak>& devices);

bool within(const std::vector<DevicePeak>& devices, const MemoryLimits& limits);
// A device that has too little memory, or null.
const DevicePeak* device_over(const MemoryPlan& plan, const MemoryLimits& limits);
// Devices and host.
bool fits(const MemoryPlan& plan, const MemoryLimits& limits);

}  // namespace flux2
