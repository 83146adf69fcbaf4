// Running one of our programs as a user does.
#pragma once

#include <string>

namespace flux2::test {

struct ProgramResult {
    int exit_code = -1;
    std::string out;
    std::string err;
};

// Where the programs of this build are.
std::string flux2_path();
std::string convert_path();
std::string server_path();
std::string train_path();

// Runs a shell command line and waits for it.
ProgramResult run_program(const std::string& command_line);

}  // namespace flux2::test
