#include "support/program.hpp"

#include "support/support.hpp"

#include <sys/wait.h>
#include <cstdlib>

namespace flux2::test {
namespace {

std::string text_of(const std::filesystem::path& file) {
    const Bytes bytes = read_file(file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string flux2_path() {
    return FLUX2_PROGRAM;
}

std::string convert_path() {
    return FLUX2_CONVERT_PROGRAM;
}

std::string server_path() {
    return FLUX2_SERVER_PROGRAM;
}

std::string train_path() {
    return FLUX2_TRAIN_PROGRAM;
}

ProgramResult run_program(const std::string& command_line) {
    const TemporaryFolder folder;
    const int status = std::system((command_line + " > '" + (folder / "out").string() + "' 2> '" +
                                    (folder / "err").string() + "'")
                                       .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder / "out"),
            text_of(folder / "err")};
}

}  // namespace flux2::test
