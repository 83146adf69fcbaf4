// flux2 models and flux2 rm: which models there are, and deleting those that were fetched.
#pragma once

namespace flux2::cli {

// Arguments after "models" and after "rm". Return the exit code.
int models(int argc, char** argv);
int remove_models(int argc, char** argv);

}  // namespace flux2::cli
