// Where programs find what belongs to them and to the user.
#pragma once

#include <filesystem>
#include <string>

namespace flux2::cli {

// A file or folder that comes with the programs: near them when they are installed, else in the
// source tree. Empty when it is in neither.
std::filesystem::path shared_file(const std::string& name);

// The user's folder of models that were made here; empty when the system has none.
std::filesystem::path own_models_folder();

// The user's cache folder; empty when the system has none.
std::filesystem::path default_cache_folder();

}  // namespace flux2::cli
