#include "common/reference_options.hpp"

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/image_limits.hpp"
#include "base/parse_number.hpp"

#include <algorithm>

namespace flux2::cli {
namespace {

bool is_word(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
}

}  // namespace

std::string role_words() {
    std::string words;
    for (const ReferenceRole& role : reference_roles()) {
        words += (words.empty() ? "" : ", ") + role.word;
    }
    return words;
}

bool is_role(const std::string& word) {
    return std::any_of(reference_roles().begin(), reference_roles().end(),
                       [&](const ReferenceRole& role) { return role.word == word; });
}

ReferenceFile parse_reference(const std::string& text) {
    const size_t equals = text.find('=');
    const std::string word = text.substr(0, equals);
    if (equals == std::string::npos || !is_word(word) || file_exists(text)) {
        return {.file = text, .role = ""};
    }
    check(is_role(word), ErrorKind::bad_argument, "the reference ", text,
          " is no existing file, and '", word, "' is no role; roles are ", role_words());
    check(equals + 1 < text.size(), ErrorKind::bad_argument, "the reference ", text,
          " names no file; use ", word, "=FILE");
    return {.file = text.substr(equals + 1), .role = word};
}

int64_t parse_reference_pixels(const std::string& option, const std::string& text) {
    if (text == "full") {
        return 0;
    }
    const auto number = [&](const std::string& digits) {
        const int value = parse_int(option, digits);
        check(value > 0, ErrorKind::bad_argument, option, " ", text,
              " is out of range; use full, a number of pixels above 0, or a size such as 768x768");
        return value;
    };
    const size_t by = text.find('x');
    if (by == std::string::npos) {
        return number(text);
    }
    return int64_t{number(text.substr(0, by))} * number(text.substr(by + 1));
}

}  // namespace flux2::cli
