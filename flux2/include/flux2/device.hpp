// The devices that this machine and build can compute on.
#pragma once

#include <flux2/export.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

struct DeviceInfo {
    std::string name;         // "CPU", "CUDA0", ...: what LoadOptions::device takes
    std::string description;  // the product's name
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    bool is_software = false;  // a GPU that the CPU imitates: used only when it is named
};

FLUX2_API std::vector<DeviceInfo> list_devices();

}  // namespace flux2
