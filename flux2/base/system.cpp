#include "base/system.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <io.h>
#include <windows.h>
#else
#include <time.h>
#include <unistd.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#endif
#ifdef __linux__
#include <sched.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace flux2 {

namespace fs = std::filesystem;

namespace {

int hardware_threads() {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

#ifdef __linux__
// The value of a line such as "MemAvailable:   123 kB" in bytes, else 0.
uint64_t kib_line(const char* file, const std::string& key) {
    std::ifstream lines(file);
    for (std::string word; lines >> word;) {
        uint64_t kib = 0;
        if (word == key && lines >> kib) {
            return kib * 1024;
        }
    }
    return 0;
}

void add_limit(decltype(RLIMIT_AS) resource, const char* in_use, const char* name,
               std::vector<MemoryLimit>& limits) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        const uint64_t used = kib_line("/proc/self/status", in_use);
        limits.push_back({limit.rlim_cur, limit.rlim_cur - std::min(limit.rlim_cur, used), name});
    }
}

int within_share(int n_cores) {
    return std::min(n_cores, read_group_limits("/").cores.value_or(n_cores));
}
#endif

}  // namespace

#ifndef __linux__

std::vector<MemoryLimit> process_memory_limits() {
    return {};
}

int logical_cores() {
    return hardware_threads();
}

#endif

#ifdef _WIN32

fs::path program_folder() {
    std::vector<wchar_t> name(32768);
    const DWORD size = GetModuleFileNameW(nullptr, name.data(), static_cast<DWORD>(name.size()));
    return fs::path(name.data(), name.data() + size).parent_path();
}

uint64_t own_memory_bytes() {
    return 0;
}

double cpu_seconds() {
    return 0;
}

MachineMemory machine_memory() {
    MEMORYSTATUSEX status{};
    status.dwLength = sizeof(status);
    return GlobalMemoryStatusEx(&status) ? MachineMemory{status.ullTotalPhys, status.ullAvailPhys}
                                         : MachineMemory{};
}

// Of all groups of processors. The system gives a record of its own size for each core.
int physical_cores() {
    DWORD size = 0;
    GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &size);
    std::vector<std::byte> records(size);
    const auto record_at = [&](size_t at) {
        return reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(records.data() + at);
    };
    if (size == 0 ||
        !GetLogicalProcessorInformationEx(RelationProcessorCore, record_at(0), &size)) {
        return logical_cores();
    }
    int n = 0;
    for (size_t at = 0; at < size; at += record_at(at)->Size) {
        ++n;
    }
    return std::clamp(n, 1, logical_cores());
}

bool stderr_is_terminal() {
    return _isatty(_fileno(stderr)) != 0;
}

bool stdin_is_terminal() {
    return _isatty(_fileno(stdin)) != 0;
}

void write_to_stderr(std::string_view text) noexcept {
    constexpr int kErrorStream = 2;
    _write(kErrorStream, text.data(), static_cast<unsigned>(text.size()));
}

#else

double cpu_seconds() {
    timespec time{};
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0
               ? static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9
               : 0;
}

bool stderr_is_terminal() {
    return isatty(STDERR_FILENO) != 0;
}

bool stdin_is_terminal() {
    return isatty(STDIN_FILENO) != 0;
}

void write_to_stderr(std::string_view text) noexcept {
    // There is nowhere to report a failure of this write.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

#endif

#ifdef __APPLE__

fs::path program_folder() {
    std::vector<char> name(4096);
    uint32_t size = static_cast<uint32_t>(name.size());
    return _NSGetExecutablePath(name.data(), &size) == 0 ? fs::path(name.data()).parent_path()
                                                         : fs::path();
}

uint64_t own_memory_bytes() {
    return 0;
}

MachineMemory machine_memory() {
    uint64_t total = 0;
    size_t size = sizeof(total);
    return {sysctlbyname("hw.memsize", &total, &size, nullptr, 0) == 0 ? total : 0, 0};
}

int physical_cores() {
    int n = 0;
    size_t size = sizeof(n);
    return sysctlbyname("hw.physicalcpu", &n, &size, nullptr, 0) == 0 && n > 0 ? n
                                                                               : logical_cores();
}

#elif defined(__linux__)

fs::path program_folder() {
    std::error_code ignored;
    return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

uint64_t own_memory_bytes() {
    return kib_line("/proc/self/status", "RssAnon:");
}

MachineMemory machine_memory() {
    return {kib_line("/proc/meminfo", "MemTotal:"), kib_line("/proc/meminfo", "MemAvailable:")};
}

std::vector<MemoryLimit> process_memory_limits() {
    std::vector<MemoryLimit> limits = read_group_limits("/").memory;
    add_limit(RLIMIT_AS, "VmSize:", "ulimit -v", limits);
    add_limit(RLIMIT_DATA, "VmData:", "ulimit -d", limits);
    return limits;
}

int logical_cores() {
    return within_share(hardware_threads());
}

int physical_cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return logical_cores();
    }
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) {
            continue;
        }
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
        std::string siblings;  // the same text for all threads of a core
        if (file >> siblings) {
            cores.insert(siblings);
        }
    }
    return cores.empty() ? logical_cores() : within_share(static_cast<int>(cores.size()));
}

#endif

bool process_may_use_hopper() {
    static const bool may = std::getenv("FLUX2_NO_HOPPER") == nullptr;
    return may;
}

bool process_may_use_vnni() {
    static const bool may = std::getenv("FLUX2_NO_VNNI") == nullptr;
    return may;
}

bool process_may_use_avx512() {
#if defined(__GNUC__) && defined(__x86_64__)
    static const bool may =
        std::getenv("FLUX2_NO_AVX512") == nullptr && __builtin_cpu_supports("avx512f");
    return may;
#else
    return false;
#endif
}

#if defined(__linux__) && defined(__x86_64__)

namespace {

bool ask_for_amx() {
    constexpr unsigned kBf16Tiles = 1u << 22 | 1u << 24;  // of leaf 7, edx
    constexpr unsigned kAvx512Bf16 = 1u << 5;             // of its part 1, eax
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (std::getenv("FLUX2_NO_AMX") != nullptr || !process_may_use_avx512() ||
        __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16Tiles) != kBf16Tiles ||
        __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512Bf16) == 0 ||
        !__builtin_cpu_supports("avx512bw")) {
        return false;
    }
    constexpr long kAskForFeature = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kAskForFeature, kTileData) == 0;
}

}  // namespace

bool process_may_use_amx() {
    static const bool may = ask_for_amx();
    return may;
}

#else

bool process_may_use_amx() {
    return false;
}

#endif

#if defined(__APPLE__) && defined(__aarch64__)

namespace {

bool has_feature(const char* feature) {
    int value = 0;
    size_t size = sizeof(value);
    return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value == 1;
}

}  // namespace

#endif

namespace {

bool cpu_multiplies_matrices() {
#if defined(__linux__) && defined(__aarch64__)
    constexpr unsigned long kBoth = 1UL << 13 | 1UL << 14;  // HWCAP2_I8MM, HWCAP2_BF16
    return (getauxval(AT_HWCAP2) & kBoth) == kBoth;
#elif defined(__APPLE__) && defined(__aarch64__)
    return has_feature("hw.optional.arm.FEAT_BF16") && has_feature("hw.optional.arm.FEAT_I8MM");
#else
    return false;
#endif
}

}  // namespace

bool process_may_use_arm_matrices() {
    static const bool may = std::getenv("FLUX2_NO_BF16") == nullptr && cpu_multiplies_matrices();
    return may;
}

bool cpu_has_dot_products() {
#if defined(__linux__) && defined(__aarch64__)
    constexpr unsigned long kDotProducts = 1UL << 20;  // HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#elif defined(__APPLE__) && defined(__aarch64__)
    return has_feature("hw.optional.arm.FEAT_DotProd");
#else
    return false;
#endif
}

void return_unused_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

}  // namespace flux2
