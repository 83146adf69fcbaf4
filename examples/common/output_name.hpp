// Names of pictures: a pattern with a seed and a number in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace flux2::cli {

// Tries whether a picture can be written under this name, in folders that are made for it; leaves
// no trace. Throws bad_argument for an ending that is no picture's, bad_file when it cannot.
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
    // What becomes of files that are there already: a picture that is kept costs a new one its
    // name, and numbers begin behind the highest that a file of this pattern has, with any seed.
    enum class Existing { kept, replaced };

    OutputNames(std::string pattern, Existing existing);

    // The number of the next picture.
    int next_number() const;
    // Whether a picture must not replace a file that appeared under its name in the meantime; the
    // name after it is then the one to try.
    bool keeps_existing() const { return existing_ == Existing::kept && !stream_; }
    // A name that no picture of this run has, unless it is that of a pipe or a device.
    std::filesystem::path next(uint64_t seed);

  private:
    std::string pattern_;
    Existing existing_;
    bool stream_;
    int next_ = 1;
    std::set<std::filesystem::path> given_;
};

}  // namespace flux2::cli
