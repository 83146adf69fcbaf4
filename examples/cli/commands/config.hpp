// flux2 config: which settings hold, and where they come from.
#pragma once

namespace flux2::cli {

// Arguments after "config". Returns the exit code.
int config(int argc, char** argv);

}  // namespace flux2::cli
