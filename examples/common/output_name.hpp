// Names of pictures: a pattern with a seed and a number in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace flux2::cli {

// Tests whether a picture can be written under this name, if folders are created for it; changes
// nothing on disk. Throws bad_argument for an unknown extension, bad_file when it cannot.
void check_output_file(const std::filesystem::path& path);
// Likewise; throws bad_argument also for a % that is neither %d, %03d nor %%.
void check_output_pattern(const std::string& pattern);

// Fills in {seed} and %d, %03d, ... with a number.
std::filesystem::path output_name(const std::string& pattern, uint64_t seed, int number);

// A pattern for several pictures: "a.png" -> "a-%03d.png". One with a seed or a number in it stays
// as it is, and so does the name of a pipe or a device, which takes one picture after another.
std::string pattern_of_several(const std::string& pattern);
// Whether there is a number in it.
bool has_number(const std::string& pattern);

// "a.png" -> "a-002.png"
std::filesystem::path with_number(const std::filesystem::path& path, int number);

// The names of a run's pictures, one after another.
class OutputNames {
  public:
    // How existing files are treated. `kept`: new pictures get other names, and numbers continue
    // after the highest number that a file of this pattern has, with any seed.
    enum class Existing { kept, replaced };

    OutputNames(std::string pattern, Existing existing);

    // The number of the next picture.
    int next_number() const;
    // Whether a picture must not replace a file that appeared under its name in the meantime; then
    // the next name must be tried.
    bool keeps_existing() const { return existing_ == Existing::kept && !stream_; }
    // A name that no other picture of this run has, except for a pipe or a device.
    std::filesystem::path next(uint64_t seed);

  private:
    std::string pattern_;
    Existing existing_;
    bool stream_;
    int next_ = 1;
    std::set<std::filesystem::path> given_;
};

}  // namespace flux2::cli
