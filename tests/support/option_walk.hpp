// Where the values of a program's options come from, for tests that walk its table of options.
#pragma once

#include "base/parse_arguments.hpp"
#include "support/support.hpp"

#include <cxxopts.hpp>

#include <functional>
#include <string>
#include <vector>

namespace flux2::test {

// Sets a variable while it exists.
class Variable {
  public:
    Variable(std::string name, const std::string& value);
    ~Variable();
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    std::string name_;
};

// A program as far as its options go.
struct OptionProgram {
    std::function<cxxopts::Options()> describe;
    // Whether lines before the first section are for it too: those are about pictures.
    bool takes_common_lines = true;
    // What the program does to its arguments before it parses them; empty: nothing.
    std::function<std::vector<std::string>(const cxxopts::Options&, int, char**)> respell = {};

    // The values of an option and where they come from; empty when it is not set.
    OptionSource source_of(const std::string& option, const std::vector<std::string>& given) const;
    // The values that the program gets; of a flag: "true" each time.
    std::vector<std::string> values_of(const std::string& option,
                                       const std::vector<std::string>& given) const;
    // The error about this file of settings.
    CaughtError refused(const std::string& text, const std::vector<std::string>& given = {}) const;
};

// Checks for every option of the table that its default gives way to the file of settings, that to
// a preset where the program has them, that to the variable, and that to the command line. Returns
// how many there are.
size_t check_every_option(const OptionProgram& program);
// Checks that wrong lines for the program are told with file and line. `flag` is one of its flags.
void check_wrong_lines(const OptionProgram& program, const std::string& flag);

}  // namespace flux2::test
