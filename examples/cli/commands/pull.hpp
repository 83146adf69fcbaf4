// flux2 pull: fetches models from the Hugging Face Hub.
#pragma once

namespace flux2::cli {

// Arguments after "pull". Returns the exit code.
int pull(int argc, char** argv);

}  // namespace flux2::cli
