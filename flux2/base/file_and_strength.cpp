#include "base/file_and_strength.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_number.hpp"

#include <cctype>
#include <optional>

namespace flux2 {
namespace {

// Nothing when the text is no finite number.
std::optional<float> number_in(const std::string& text) {
    try {
        return parse_float("", text);
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

FileAndStrength parse_file_and_strength(const std::string& option, const std::string& text) {
    check(!text.empty(), ErrorKind::bad_argument, option,
          " is given an empty name; name a file or leave it out");
    const size_t colon = text.rfind(':');
    const bool is_drive = colon == 1 && std::isalpha(static_cast<unsigned char>(text[0])) != 0;
    if (colon == std::string::npos || is_drive || file_exists(text)) {
        return {text};
    }
    const std::string name = text.substr(0, colon);
    const std::string strength = text.substr(colon + 1);
    if (const std::optional<float> number = number_in(strength)) {
        check(!name.empty(), ErrorKind::bad_argument, option, " ", text,
              " names no file; use FILE:STRENGTH");
        return {name, *number};
    }
    check(!file_exists(name), ErrorKind::bad_argument, option, " ", text, ": '", strength,
          "' is no strength; use a number such as 0.8");
    return {text};
}

}  // namespace flux2
