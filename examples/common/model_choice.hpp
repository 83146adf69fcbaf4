// Which files a run uses: those named, those of a folder, or the tiny model that comes with us.
#pragma once

#include "common/options.hpp"

#include <flux2/flux2.hpp>

#include <filesystem>

namespace flux2::cli {

// The files to use: those found in the folder, replaced by those that are named; without any of
// these the bundled model. The choice is told in one line on stderr unless quiet.
ModelFiles choose_files(const ModelOptions& model, bool quiet);

// Where the bundled model lies: beside the installed programs, else in the source tree. Empty when
// it is in neither.
std::filesystem::path bundled_model();

}  // namespace flux2::cli
