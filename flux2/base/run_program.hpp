// Another program, run to its end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Runs the program with these arguments and this process's streams, and returns its exit code; 130
// when a signal ended it. Throws bad_file when it cannot be started.
int run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments);

// An argument as it stands in a command line of Windows, in quotes: programs there split the line
// themselves, by the rules of CommandLineToArgvW.
std::wstring quoted_for_windows(std::wstring_view argument);

}  // namespace flux2
