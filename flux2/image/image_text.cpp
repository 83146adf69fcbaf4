#include "image/image_text.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"

#include <algorithm>

namespace flux2 {

std::optional<std::string> text_problem(const ImageText& text) {
    const bool printable =
        std::all_of(text.key.begin(), text.key.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!printable || text.key.empty() || text.key.size() > kMaxTextKey) {
        return concat("a text in a picture has the key '", text.key, "', expected 1 to ",
                      kMaxTextKey, " printable ASCII characters");
    }
    if (!is_utf8(text.text) || text.text.find('\0') != std::string::npos) {
        return concat("the text '", text.key, "' for a picture is not UTF-8 or has zero bytes");
    }
    return std::nullopt;
}

}  // namespace flux2
