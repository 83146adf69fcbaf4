// Lines of settings as users type them: width=512 input_images="a b.png",c.png
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace flux2::cli {

// key=value. A value goes on to the next setting of the line; in quotes it may hold anything, and
// \" stands for a quote in it.
struct LineSetting {
    std::string key;
    std::string raw;                 // the value as typed
    std::vector<std::string> items;  // the same, separated at commas, without quotes

    // The value of a setting that is no list, without quotes. Throws bad_argument when there are
    // several in quotes.
    std::string text() const;
};

// The settings of a line; nothing when it is a prompt, which is every line that does not begin with
// one of these keys and '='. Throws bad_argument for a line that begins with another single word of
// small letters and '=', and for quotes that are not closed or that more follows.
std::optional<std::vector<LineSetting>> parse_setting_line(const std::string& line,
                                                           const std::set<std::string>& keys);

// The words of a line.
std::vector<std::string> words_of(const std::string& line);

// Without spaces around it.
std::string trimmed(const std::string& text);

}  // namespace flux2::cli
