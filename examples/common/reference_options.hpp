// Reference pictures as users name them: files, what they are for, and how large they may be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2::cli {

struct ReferenceFile {
    std::filesystem::path file;
    std::string role;  // as in Request::reference_roles

    bool operator==(const ReferenceFile&) const = default;
};

// "FILE" or "ROLE=FILE". A text that names an existing file is its name, whatever it begins with.
// Throws bad_argument for a word before = that is no role.
ReferenceFile parse_reference(const std::string& text);

// "full", a number of pixels, or a size such as 768x768 with as many; 0: no limit. Throws
// bad_argument, naming the option.
int64_t parse_reference_pixels(const std::string& option, const std::string& text);

// "style, pose, ..."
std::string role_words();
bool is_role(const std::string& word);

}  // namespace flux2::cli
