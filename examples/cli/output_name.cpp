#include "output_name.hpp"

#include "base/check.hpp"
#include "base/file.hpp"

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
    const bool doubled = end == at + 1 && pattern.compare(end, 1, "%") == 0;
    check(doubled || pattern.compare(end, 1, "d") == 0, ErrorKind::bad_argument, "--output ",
          pattern, ": % must be followed by d, as in %d or %03d, or doubled");
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
    return n_pictures > 1 && !distinct ? with_number(name, number) : fs::path(name);
}

fs::path with_number(const fs::path& path, int number) {
    constexpr size_t kDigits = 3;
    fs::path numbered = path;
    numbered.replace_extension();
    numbered += "-" + padded(number, kDigits) + path.extension().string();
    return numbered;
}

void check_output_pattern(const std::string& pattern) {
    check_output_file(output_name(pattern, 0, 1, 1));
}

void check_output_file(const fs::path& path) {
    std::string extension = path.extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    constexpr std::array kKnown = {".png", ".jpg", ".jpeg", ".bmp"};
    check(std::find(kKnown.begin(), kKnown.end(), extension) != kKnown.end(),
          ErrorKind::bad_argument, path.string(),
          ": pictures are written under names ending in .png, .jpg, .jpeg or .bmp");
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    std::error_code ignored;
    check(fs::is_directory(folder, ignored), ErrorKind::bad_file, folder.string(),
          ": no such folder for the picture; make it first");
    check(!fs::is_directory(path, ignored), ErrorKind::bad_file, path.string(),
          ": is a folder; give the picture another name");
    const AtomicFile probe(path);  // better refused now than after the picture is made
}

}  // namespace flux2::cli
