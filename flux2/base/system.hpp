// Properties of the machine and of this process.
#pragma once

#include "base/control_groups.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace flux2 {

// The folder of the running program; empty when the system does not tell.
std::filesystem::path program_folder();

// Anonymous memory of this process (not backed by files) that is in RAM; 0 when the system does not
// tell.
uint64_t own_memory_bytes();

// Processor time of all threads of this process so far; 0 when the system does not tell.
double cpu_seconds();

// Returns memory that was freed, but is still held by the allocator, to the system.
void return_unused_memory();

// RAM of the whole machine, and what of it can be allocated without swapping; 0 where the system
// does not tell.
struct MachineMemory {
    uint64_t total = 0;
    uint64_t available = 0;
};
MachineMemory machine_memory();

// What this process may use of that: limits of its control groups and of `ulimit`.
std::vector<MemoryLimit> process_memory_limits();

// Physical cores that this process may use, and no more than its control groups' share of processor
// time keeps busy. Matrix multiplies gain nothing from a second thread on the same core.
int physical_cores();
// The same with all threads of each core.
int logical_cores();

// Whether the CPU has Arm's instructions for small matrices, of BF16 and of 8-bit integers, and the
// environment variable FLUX2_NO_BF16 is not set.
bool process_may_use_arm_matrices();
// Whether the CPU has Arm's instructions for dot products of bytes.
bool cpu_has_dot_products();

// Whether the environment variable FLUX2_NO_VNNI is not set.
bool process_may_use_vnni();

// Whether the CPU has AVX-512 and the environment variable FLUX2_NO_AVX512 is not set.
bool process_may_use_avx512();

// Whether the CPU has AMX for BF16 beside AVX-512, the system lets this process use it, and the
// environment variables FLUX2_NO_AMX and FLUX2_NO_AVX512 are not set. Asks the system once.
bool process_may_use_amx();

// Whether the environment variable FLUX2_NO_HOPPER is not set, with which an H100 or H200 computes
// with the kernels of other NVIDIA GPUs.
bool process_may_use_hopper();

// Whether the error stream is a terminal, where a progress bar makes sense.
bool stderr_is_terminal();
// Whether standard input is a terminal.
bool stdin_is_terminal();
// Writes to the error stream without buffers, so that signal handlers may use it too.
void write_to_stderr(std::string_view text) noexcept;

}  // namespace flux2
