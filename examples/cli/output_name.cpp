#include "output_name.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// What a '%' begins: the width of %03d, and where it ends.
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
    check(end < pattern.size() && (pattern[end] == 'd' || pattern[end] == '%'),
          ErrorKind::bad_argument, "--output ", pattern,
          ": % must be followed by d, as in %d or %03d, or doubled");
    return {width, end + 1};
}

std::string padded(int number, size_t width) {
    std::string digits = std::to_string(number);
    return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

}  // namespace

fs::path output_name(const std::string& pattern, uint64_t seed, int number, int n_pictures) {
    constexpr std::string_view kSeed = "{seed}";
    std::string name;
    bool distinct = false;
    for (size_t at = 0; at < pattern.size();) {
        if (pattern.compare(at, kSeed.size(), kSeed) == 0) {
            name += std::to_string(seed);
            at += kSeed.size();
            distinct = true;
        } else if (pattern[at] == '%') {
            const NumberField field = field_at(pattern, at);
            const bool is_number = pattern[field.end - 1] == 'd';
            name += is_number ? padded(number, field.width) : "%";
            distinct = distinct || is_number;
            at = field.end;
        } else {
            name += pattern[at++];
        }
    }
    fs::path path = name;
    if (n_pictures > 1 && !distinct) {
        constexpr size_t kDigits = 3;
        const std::string extension = path.extension().string();
        path.replace_extension();
        path += "-" + padded(number, kDigits) + extension;
    }
    return path;
}

void check_output_pattern(const std::string& pattern) {
    const fs::path path = output_name(pattern, 0, 1, 1);
    std::string extension = path.extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    constexpr std::array kKnown = {".png", ".jpg", ".jpeg", ".bmp"};
    check(std::find(kKnown.begin(), kKnown.end(), extension) != kKnown.end(),
          ErrorKind::bad_argument, pattern,
          ": pictures are written under names ending in .png, .jpg, .jpeg or .bmp");
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    check(fs::is_directory(folder), ErrorKind::bad_file, folder.string(),
          ": no such folder for the picture; make it first");
}

}  // namespace flux2::cli
