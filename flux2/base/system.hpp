// What the machine and this process are like.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace flux2 {

// The folder of the running program; empty when the system does not tell.
std::filesystem::path program_folder();

// Memory of this process that is no file's, as far as it is in RAM; 0 when the system does not
// tell.
uint64_t own_memory_bytes();

// Gives memory that was freed, but is still held for this process, back to the system.
void return_unused_memory();

// RAM that can be taken without pushing others out; 0 when the system does not tell.
uint64_t available_ram_bytes();

// Cores this process may use, of which two threads that share one count once: matrix multiplies
// gain nothing from the second.
int physical_cores();

// Whether the CPU has Arm's instructions for small matrices, of BF16 and of 8-bit integers.
bool cpu_multiplies_matrices();

// Whether the error stream is a terminal, where a progress bar makes sense.
bool stderr_is_terminal();
// Whether somebody types at the input.
bool stdin_is_terminal();
// Writes to the error stream past all buffers, so that signal handlers may do it too.
void write_to_stderr(std::string_view text) noexcept;

}  // namespace flux2
