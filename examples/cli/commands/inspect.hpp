// flux2 info: says what model files are and which of them work together.
#pragma once

namespace flux2::cli {

// Arguments after "info". Returns the exit code: 0, or 3 when some file could not be read.
int info(int argc, char** argv);

}  // namespace flux2::cli
