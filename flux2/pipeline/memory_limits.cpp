#include "pipeline/memory_limits.hpp"

#include <algorithm>

namespace flux2 {

uint64_t usable_bytes(uint64_t free_bytes, const DeviceAbilities& device) {
    constexpr uint64_t kReserve = 32;
    return device.fails_softly ? free_bytes : free_bytes - free_bytes / kReserve;
}

uint64_t usable_bytes(const Device& device, uint64_t held_bytes, uint64_t max_bytes) {
    const uint64_t usable = usable_bytes(device.memory().free + held_bytes, device.abilities());
    device.check_alive();
    return max_bytes > 0 ? std::min(usable, max_bytes) : usable;
}

uint64_t usable_ram_bytes(uint64_t free_bytes) {
    constexpr uint64_t kReserve = 16;
    constexpr uint64_t kLeast = 500'000'000;
    return free_bytes - std::min(free_bytes, std::max(free_bytes / kReserve, kLeast));
}

void add_bytes(std::vector<DevicePeak>& devices, const std::string& device, uint64_t bytes) {
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const DevicePeak& d) { return d.device == device; });
    if (found != devices.end()) {
        found->bytes += bytes;
    } else if (bytes > 0) {
        devices.push_back({device, bytes});
    }
}

void raise_to(std::vector<DevicePeak>& devices, const std::vector<DevicePeak>& other) {
    for (const DevicePeak& peak : other) {
        const auto found = std::find_if(devices.begin(), devices.end(), [&](const DevicePeak& d) {
            return d.device == peak.device;
        });
        if (found == devices.end()) {
            devices.push_back(peak);
        } else {
            found->bytes = std::max(found->bytes, peak.bytes);
        }
    }
}

uint64_t largest(const std::vector<DevicePeak>& devices) {
    uint64_t bytes = 0;
    for (const DevicePeak& device : devices) {
        bytes = std::max(bytes, device.bytes);
    }
    return bytes;
}

const DevicePeak* device_over(const MemoryPlan& plan, const MemoryLimits& limits) {
    const auto found =
        std::find_if(plan.devices.begin(), plan.devices.end(),
                     [&](const DevicePeak& d) { return d.bytes > limits.of(d.device); });
    return found == plan.devices.end() ? nullptr : &*found;
}

bool within(const std::vector<DevicePeak>& devices, const MemoryLimits& limits) {
    return std::all_of(devices.begin(), devices.end(),
                       [&](const DevicePeak& d) { return d.bytes <= limits.of(d.device); });
}

bool fits(const MemoryPlan& plan, const MemoryLimits& limits) {
    return device_over(plan, limits) == nullptr && plan.host_peak <= limits.host;
}

}  // namespace flux2
