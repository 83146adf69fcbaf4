// Dataset files of kohya-ss/musubi-tuner: TOML with [general] and [[datasets]].
#pragma once

#include "train/dataset.hpp"
#include "train/problems.hpp"

#include <filesystem>
#include <vector>

namespace flux2::cli {

// The sources that the file names; relative paths are relative to the current folder or, where that
// does not have them, to the file. What is wrong is added to the problems with file and line.
std::vector<DatasetSource> read_dataset_file(const std::filesystem::path& file, Problems& problems);

}  // namespace flux2::cli
