// "FILE" or "FILE:0.8", as users name a LoRA.
#pragma once

#include <filesystem>
#include <string>

namespace flux2 {

struct FileAndStrength {
    std::filesystem::path file;
    float strength = 1;
};

// The last colon splits when a number follows it, unless there is a file of the whole name; the
// colon of a drive letter does not. Throws bad_argument, naming the option, for an empty name and
// for a file that exists followed by something that is no number.
FileAndStrength parse_file_and_strength(const std::string& option, const std::string& text);

}  // namespace flux2
