// flux2 selftest: runs recorded inputs through every network and compares with the reference, or
// replays recorded runs with model files.
#pragma once

namespace flux2::cli {

// Arguments after "selftest". Returns the exit code: 0 all within limits, 1 some FAIL.
int selftest(int argc, char** argv);

}  // namespace flux2::cli
