#include "train/problems.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace flux2 {

void Problems::add(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) {
        lines_.push_back(line);
    }
}

void Problems::throw_if_any() const {
    constexpr size_t kShown = 200;
    if (lines_.empty()) {
        return;
    }
    if (lines_.size() == 1) {
        fail(ErrorKind::bad_file, lines_.front());
    }
    std::string text = concat(lines_.size(), " problems with the data:");
    for (size_t i = 0; i < lines_.size() && i < kShown; ++i) {
        text += "\n  " + lines_[i];
    }
    if (lines_.size() > kShown) {
        text += concat("\n  and ", lines_.size() - kShown, " more");
    }
    fail(ErrorKind::bad_file, text);
}

}  // namespace flux2
