// The interactive session: prompts are typed one after another, the model stays loaded.
#pragma once

#include "commands/display.hpp"
#include "common/options.hpp"

namespace flux2::cli {

// Reads standard input to its end or to `quit`. Returns the exit code.
int run_session(const GenerateOptions& options, Display& display);

}  // namespace flux2::cli
