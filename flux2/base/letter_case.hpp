// Upper and lower case of the letters A to Z. All other bytes, also those of UTF-8 sequences, are
// unchanged.
#pragma once

#include <algorithm>
#include <string>

namespace flux2 {

inline std::string to_lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return text;
}

inline std::string to_upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return text;
}

}  // namespace flux2
