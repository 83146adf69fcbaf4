// Limits of Linux's control groups (cgroups, versions 1 and 2), which containers and services have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

struct MemoryLimit {
    uint64_t bytes = 0;  // that may be in use
    uint64_t left = 0;   // of these; pages of files, which the system can drop, are not in use
    std::string name;    // as the system calls it: "memory.max"
};

struct GroupLimits {
    // Of the group of this process and of those around it, as far as they are visible.
    std::vector<MemoryLimit> memory;
    // As many as the groups' share of processor time keeps busy, rounded up.
    std::optional<int> cores;
};

// What the files of the system say, which lie under `root` ("/" outside of tests). What is missing
// or no number is no limit.
GroupLimits read_group_limits(const std::filesystem::path& root);

}  // namespace flux2
