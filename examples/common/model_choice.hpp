// Which model files a run uses: those named, those of a folder, those of a model that is named, or
// the bundled tiny model.
#pragma once

#include "common/line_sink.hpp"
#include "common/options.hpp"

#include <flux2/flux2.hpp>

#include <filesystem>

namespace flux2::cli {

// Files that are named replace those found in the folder or those of the named model, which are
// downloaded where they are not here; without any of these the bundled model is used.
// The choice is told in one line, after those about downloads.
ModelFiles choose_files(const ModelOptions& model, const LineSink& tell);

// The folder of the bundled model: near the installed programs, else in the source tree. Empty when
// there is neither.
std::filesystem::path bundled_model();

}  // namespace flux2::cli
