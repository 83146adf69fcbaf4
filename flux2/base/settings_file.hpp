// The user's file of settings, flux2.ini: values of options for a program or under the name of a
// preset.
//   device = CUDA0        # for flux2 and flux2-server
//   [flux2-server]
//   port = 9000           # for that program
//   [portrait]            # a preset of this name
//   width = 768
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {

// One value in the file.
struct SettingsLine {
    std::string section;  // empty: before the first section
    std::string option;   // without dashes in front
    std::string value;
    size_t number = 0;  // of the line, from 1 on
};

struct SettingsFile {
    std::filesystem::path path;
    std::vector<SettingsLine> lines;
    std::vector<std::string> sections;  // in their order, also empty ones

    // "/home/u/.config/flux2/flux2.ini:3"
    std::string place(const SettingsLine& line) const;
};

// The user's folder of settings: $XDG_CONFIG_HOME/flux2, %APPDATA%/flux2 or ~/.config/flux2; empty
// when the system has none.
std::filesystem::path settings_folder();
// The file that FLUX2_CONFIG names, else flux2.ini in that folder. Empty when FLUX2_CONFIG is,
// which means that none is read.
std::filesystem::path settings_path();

// Without lines when there is no such file. Throws bad_file with file and line for a line that is
// neither [section] nor option = value.
SettingsFile read_settings_file(const std::filesystem::path& path);

}  // namespace flux2
