// The settings of an interactive session by their keys.
#pragma once

#include "common/options.hpp"
#include "common/setting_line.hpp"

#include <filesystem>
#include <functional>
#include <set>
#include <string>

namespace flux2::cli {

// All of them, without the prompt.
const std::set<std::string>& session_keys();

// The file that a user names, such as $2 for the second result.
using PictureByName = std::function<std::filesystem::path(const std::string&)>;

// An empty value is the default. Throws bad_argument for a value that makes no sense, bad_file for
// a picture that cannot be read.
void apply_setting(const LineSetting& setting, const PictureByName& picture,
                   GenerateOptions& options);

// Takes over the value of one of the keys.
void copy_setting(const std::string& key, const GenerateOptions& from, GenerateOptions& options);

// A line key=value for each, as they can be typed.
std::string describe_settings(const GenerateOptions& options);

}  // namespace flux2::cli
