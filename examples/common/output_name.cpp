#include "common/output_name.hpp"

#include <flux2/image.hpp>
#include "base/check.hpp"
#include "base/file.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <regex>
#include <string_view>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// A number field such as %03d: its width, and where it ends.
struct NumberField {
    size_t width = 0;
    size_t end = 0;
};

NumberField field_at(const std::string& pattern, size_t at) {
    size_t end = at + 1;
    size_t width = 0;
    while (end < pattern.size() && std::isdigit(static_cast<unsigned char>(pattern[end])) != 0 &&
           end - at <= 2) {
        width = width * 10 + static_cast<size_t>(pattern[end++] - '0');
    }
    const bool doubled = end == at + 1 && pattern.compare(end, 1, "%") == 0;
    check(doubled || pattern.compare(end, 1, "d") == 0, ErrorKind::bad_argument, "--output ",
          pattern, ": % must be followed by d, as in %d or %03d, or doubled");
    return {width, end + 1};
}

// Callbacks for the pieces of a pattern, from left to right.
struct Pieces {
    std::function<void(char)> letter;
    std::function<void()> seed;
    std::function<void(size_t width)> number;
};

void parse_pattern(const std::string& pattern, const Pieces& pieces) {
    constexpr std::string_view kSeed = "{seed}";
    for (size_t at = 0; at < pattern.size();) {
        if (pattern.compare(at, kSeed.size(), kSeed) == 0) {
            pieces.seed();
            at += kSeed.size();
        } else if (pattern[at] == '%') {
            const NumberField field = field_at(pattern, at);
            if (pattern[field.end - 1] == 'd') {
                pieces.number(field.width);
            } else {
                pieces.letter('%');
            }
            at = field.end;
        } else {
            pieces.letter(pattern[at++]);
        }
    }
}

std::string padded(int number, size_t width) {
    std::string digits = std::to_string(number);
    return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

bool has_seed(const std::string& pattern) {
    bool found = false;
    parse_pattern(pattern, {[](char) {}, [&] { found = true; }, [](size_t) {}});
    return found;
}

// A regular expression for the names that one path component of a pattern can produce; a number of
// up to nine digits is captured.
std::regex names_of(const std::string& pattern) {
    std::string text;
    parse_pattern(pattern, {[&](char c) {
                                const bool plain =
                                    std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                    static_cast<unsigned char>(c) >= 0x80;
                                text += plain ? std::string(1, c) : std::string("\\") + c;
                            },
                            [&] { text += "[0-9]+"; }, [&](size_t) { text += "([0-9]{1,9})"; }});
    return std::regex(text);
}

// The highest number in names below `folder` that the rest of a pattern makes; 0 when there is
// none.
int highest_number(const fs::path& folder, fs::path::const_iterator piece,
                   const fs::path::const_iterator& end) {
    if (piece == end) {
        return 0;
    }
    const std::string pattern = piece->string();
    ++piece;
    if (!has_number(pattern) && !has_seed(pattern)) {
        return highest_number(folder / output_name(pattern, 0, 0), piece, end);
    }
    const std::regex names = names_of(pattern);
    int highest = 0;
    std::error_code error;
    for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), last;
         !error && entry != last; entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        std::smatch found;
        if (std::regex_match(name, found, names)) {
            const int below = highest_number(entry->path(), piece, end);
            highest = std::max({highest, below, found.size() > 1 ? std::stoi(found[1]) : 0});
        }
    }
    return highest;
}

}  // namespace

fs::path output_name(const std::string& pattern, uint64_t seed, int number) {
    std::string name;
    parse_pattern(pattern, {[&](char c) { name += c; }, [&] { name += std::to_string(seed); },
                            [&](size_t width) { name += padded(number, width); }});
    return name;
}

bool has_number(const std::string& pattern) {
    bool found = false;
    parse_pattern(pattern, {[](char) {}, [] {}, [&](size_t) { found = true; }});
    return found;
}

std::string pattern_of_several(const std::string& pattern) {
    if (has_number(pattern) || has_seed(pattern) || is_stream(output_name(pattern, 0, 0))) {
        return pattern;
    }
    fs::path numbered = pattern;
    numbered.replace_extension();
    numbered += "-%03d" + fs::path(pattern).extension().string();
    return numbered.string();
}

fs::path with_number(const fs::path& path, int number) {
    constexpr size_t kDigits = 3;
    fs::path numbered = path;
    numbered.replace_extension();
    numbered += "-" + padded(number, kDigits) + path.extension().string();
    return numbered;
}

void check_output_pattern(const std::string& pattern) {
    check_output_file(output_name(pattern, 0, 1));
}

void check_output_file(const fs::path& path) {
    // Report errors before the picture is made.
    image_format_of(path);
    if (!is_stream(path)) {
        check_writable(path);
    }
}

OutputNames::OutputNames(std::string pattern, Existing existing)
    : pattern_(std::move(pattern)),
      existing_(existing),
      stream_(is_stream(output_name(pattern_, 0, 0))) {}

int OutputNames::next_number() const {
    if (!keeps_existing() || !has_number(pattern_)) {
        return next_;
    }
    const fs::path pattern = pattern_;
    return std::max(next_, highest_number("", pattern.begin(), pattern.end()) + 1);
}

fs::path OutputNames::next(uint64_t seed) {
    next_ = next_number();
    const fs::path name = output_name(pattern_, seed, next_++);
    const auto taken = [&](const fs::path& file) {
        std::error_code ignored;
        return !given_.insert(file).second || (keeps_existing() && fs::exists(file, ignored));
    };
    fs::path file = name;
    // Names by seed repeat when several prompts use the same seed.
    for (int n = 2; !stream_ && taken(file); ++n) {
        file = with_number(name, n);
    }
    return file;
}

}  // namespace flux2::cli
