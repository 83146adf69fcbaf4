// Names of pictures: a pattern with a seed and a number in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace flux2::cli {

// Tries whether a picture can be written under this name. Throws bad_argument for an ending that is
// no picture's, bad_file when the folder does not exist or takes no files.
void check_output_file(const std::filesystem::path& path);
// Likewise; throws bad_argument also for a % that is neither %d, %03d nor %%.
void check_output_pattern(const std::string& pattern);

// Fills in {seed} and %d, %03d, ... with the picture's number from 1 on. Of several pictures under
// a name without either, each gets its number before the ending.
std::filesystem::path output_name(const std::string& pattern, uint64_t seed, int number,
                                  int n_pictures);

// "a.png" -> "a-002.png"
std::filesystem::path with_number(const std::filesystem::path& path, int number);

}  // namespace flux2::cli
