// The files are described in Linux's documentation: admin-guide/cgroup-v2, admin-guide/cgroup-v1
// and, for /proc/self/mountinfo, filesystems/proc.
#include "base/control_groups.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// Version 1 writes the largest number of whole pages where there is no limit.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<uint64_t> to_number(std::string_view word) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_number = error == std::errc() && end == word.data() + word.size();
    return is_number ? std::optional(number) : std::nullopt;
}

std::vector<std::string> words_of(const fs::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
        words.push_back(word);
    }
    return words;
}

// The only word of a file.
std::optional<uint64_t> number_in(const fs::path& file) {
    const std::vector<std::string> words = words_of(file);
    return words.size() == 1 ? to_number(words.front()) : std::nullopt;
}

// What is beside these keys in lines "key number".
uint64_t sum_of(const fs::path& file, std::initializer_list<std::string_view> keys) {
    std::ifstream stream(file);
    uint64_t sum = 0;
    std::string key, value;
    while (stream >> key >> value) {
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
            sum += to_number(value).value_or(0);
        }
    }
    return sum;
}

bool lists(const std::string& names, std::string_view name) {
    std::istringstream stream(names);
    for (std::string item; std::getline(stream, item, ',');) {
        if (item == name) {
            return true;
        }
    }
    return false;
}

// A hierarchy of groups; version 2 has one, version 1 one for each controller or some of them.
struct Hierarchy {
    std::string type;        // of file system: "cgroup" or "cgroup2"
    std::string controller;  // of version 1: "memory"

    // Whether /proc/self/cgroup means it by what is between the first two colons of a line.
    bool is_named(const std::string& controllers) const {
        return type == "cgroup2" ? controllers.empty() : lists(controllers, controller);
    }
};

// The group of this process, from the root of the hierarchy: "/docker/0123".
std::optional<fs::path> own_group(const fs::path& root, const Hierarchy& hierarchy) {
    std::ifstream lines(root / "proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second != line.npos && hierarchy.is_named(line.substr(first + 1, second - first - 1))) {
            return fs::path(line.substr(second + 1));
        }
    }
    return std::nullopt;
}

struct Mount {
    fs::path group;   // what of the hierarchy is visible
    fs::path folder;  // where
};

std::optional<Mount> find_mount(const fs::path& root, const Hierarchy& hierarchy) {
    std::ifstream lines(root / "proc/self/mountinfo");
    for (std::string line; std::getline(lines, line);) {
        const size_t end = line.find(" - ");  // of what only some lines have
        if (end == line.npos) {
            continue;
        }
        std::string id, parent, device, source, type, options;
        std::string group, folder;
        std::istringstream(line) >> id >> parent >> device >> group >> folder;
        std::istringstream(line.substr(end + 3)) >> type >> source >> options;
        if (type == hierarchy.type && (type == "cgroup2" || lists(options, hierarchy.controller))) {
            return Mount{group, root / fs::path(folder).relative_path()};
        }
    }
    return std::nullopt;
}

// The folders of the process's group and of all around it, from the inside out. A group that is not
// part of what is mounted, as where a container hides its own name, counts as the mounted one.
std::vector<fs::path> group_folders(const fs::path& root, const Hierarchy& hierarchy) {
    const std::optional<fs::path> group = own_group(root, hierarchy);
    const std::optional<Mount> mount = find_mount(root, hierarchy);
    if (!group || !mount) {
        return {};
    }
    fs::path inside = group->lexically_relative(mount->group);
    if (inside.empty() || std::find(inside.begin(), inside.end(), "..") != inside.end()) {
        inside = ".";
    }
    std::vector<fs::path> folders = {mount->folder};
    for (const fs::path& name : inside) {
        if (name != "." && !name.empty()) {
            folders.insert(folders.begin(), folders.front() / name);
        }
    }
    return folders;
}

void add_limit(const fs::path& file, uint64_t used, std::vector<MemoryLimit>& limits) {
    const uint64_t bytes = number_in(file).value_or(kNoLimit);
    if (bytes < kNoLimit) {
        limits.push_back({bytes, bytes - std::min(bytes, used), file.filename().string()});
    }
}

uint64_t in_use(const fs::path& folder, const char* usage,
                std::initializer_list<std::string_view> pages_of_files) {
    const uint64_t all = number_in(folder / usage).value_or(0);
    return all - std::min(all, sum_of(folder / "memory.stat", pages_of_files));
}

// Above 0: so many cores' time.
void add_quota(uint64_t quota, uint64_t period, std::optional<int>& cores) {
    constexpr uint64_t kMostCores = 1 << 20;
    if (quota > 0 && period > 0) {
        const uint64_t n = std::min(quota / period + (quota % period > 0 ? 1 : 0), kMostCores);
        cores = std::min(cores.value_or(static_cast<int>(kMostCores)), static_cast<int>(n));
    }
}

}  // namespace

GroupLimits read_group_limits(const fs::path& root) {
    GroupLimits limits;
    for (const fs::path& folder : group_folders(root, {"cgroup2", ""})) {
        const uint64_t used = in_use(folder, "memory.current", {"inactive_file", "active_file"});
        add_limit(folder / "memory.max", used, limits.memory);
        add_limit(folder / "memory.high", used, limits.memory);
        const std::vector<std::string> quota = words_of(folder / "cpu.max");  // "max" is no number
        if (quota.size() == 2) {
            add_quota(to_number(quota[0]).value_or(0), to_number(quota[1]).value_or(0),
                      limits.cores);
        }
    }
    const std::vector<fs::path> memory_folders = group_folders(root, {"cgroup", "memory"});
    for (const fs::path& folder : memory_folders) {
        // Without this flag a group does not limit those in it.
        if (folder == memory_folders.front() ||
            number_in(folder / "memory.use_hierarchy").value_or(1) != 0) {
            const uint64_t used = in_use(folder, "memory.usage_in_bytes",
                                         {"total_inactive_file", "total_active_file"});
            add_limit(folder / "memory.limit_in_bytes", used, limits.memory);
        }
    }
    for (const fs::path& folder : group_folders(root, {"cgroup", "cpu"})) {
        // -1 where there is none.
        add_quota(number_in(folder / "cpu.cfs_quota_us").value_or(0),
                  number_in(folder / "cpu.cfs_period_us").value_or(0), limits.cores);
    }
    return limits;
}

}  // namespace flux2
