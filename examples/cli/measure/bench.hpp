// flux2 bench: times the networks of model files on random inputs, and compares them with the speed
// at which this machine multiplies matrices.
#pragma once

namespace flux2::cli {

// Arguments after "bench". Returns the exit code: 1 when a result holds values that are no numbers.
int bench(int argc, char** argv);

}  // namespace flux2::cli
