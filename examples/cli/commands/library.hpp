// flux2 library: lists the elements of a reference library and what is wrong with them.
#pragma once

namespace flux2::cli {

// Arguments after "library". Returns the exit code: 0, or 3 when there are problems.
int library(int argc, char** argv);

}  // namespace flux2::cli
