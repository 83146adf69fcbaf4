#include "common/setting_line.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <sstream>

namespace flux2::cli {
namespace {

constexpr const char* kSpaces = " \t\r";
constexpr char kQuote = '"';

bool is_space(char c) {
    return std::string(kSpaces).find(c) != std::string::npos;
}

// Whether a line that has no known key looks as if it should, rather than like a prompt.
bool looks_like_key(const std::string& text) {
    constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz_";
    return text.size() > 1 && text.find_first_not_of(kLetters) == std::string::npos;
}

class LineReader {
  public:
    LineReader(const std::string& line, const std::set<std::string>& keys)
        : line_(line), keys_(keys) {}

    std::vector<LineSetting> read() {
        std::vector<LineSetting> settings;
        while (const std::optional<std::string> key = take_key()) {
            settings.push_back(read_value(*key));
        }
        return settings;
    }

  private:
    // Where the value of a setting that begins here begins; nothing when none does.
    std::optional<size_t> value_after_key(size_t at) const {
        const size_t end = std::min(line_.find_first_of(" \t\r=", at), line_.size());
        const size_t equals = line_.find_first_not_of(kSpaces, end);
        const bool found = equals != std::string::npos && line_[equals] == '=' &&
                           keys_.contains(line_.substr(at, end - at));
        return found ? std::optional(equals + 1) : std::nullopt;
    }

    std::optional<std::string> take_key() {
        skip_spaces();
        const auto value = value_after_key(at_);
        if (!value) {
            return std::nullopt;
        }
        const std::string key = trimmed(line_.substr(at_, *value - 1 - at_));
        at_ = *value;
        return key;
    }

    LineSetting read_value(const std::string& key) {
        LineSetting setting{key, "", {}};
        const size_t begin = at_;
        if (at_end_of_value()) {
            return setting;
        }
        do {
            skip_spaces();
            setting.items.push_back(at_ < line_.size() && line_[at_] == kQuote ? read_quoted(key)
                                                                               : read_plain());
        } while (take_comma());
        setting.raw = trimmed(line_.substr(begin, at_ - begin));
        return setting;
    }

    // At the end of the line, or before spaces and another setting.
    bool at_end_of_value() const {
        const size_t next = std::min(line_.find_first_not_of(kSpaces, at_), line_.size());
        return next == line_.size() || (next > at_ && value_after_key(next));
    }

    std::string read_plain() {
        const size_t begin = at_;
        while (!at_end_of_value() && line_[at_] != ',') {
            ++at_;
        }
        return trimmed(line_.substr(begin, at_ - begin));
    }

    std::string read_quoted(const std::string& key) {
        std::string text;
        for (++at_; at_ < line_.size() && line_[at_] != kQuote; ++at_) {
            at_ += line_.compare(at_, 2, "\\\"") == 0 ? 1 : 0;
            text += line_[at_];
        }
        check(at_ < line_.size(), ErrorKind::bad_argument, key, ": a quote is not closed; add \"");
        ++at_;
        const size_t next = std::min(line_.find_first_not_of(kSpaces, at_), line_.size());
        check(at_end_of_value() || line_[next] == ',', ErrorKind::bad_argument, key,
              ": after the closing quote comes '", line_.substr(next),
              "'; put the whole value in quotes");
        return text;
    }

    bool take_comma() {
        const size_t next = std::min(line_.find_first_not_of(kSpaces, at_), line_.size());
        if (next == line_.size() || line_[next] != ',') {
            return false;
        }
        at_ = next + 1;
        return true;
    }

    void skip_spaces() {
        while (at_ < line_.size() && is_space(line_[at_])) {
            ++at_;
        }
    }

    const std::string& line_;
    const std::set<std::string>& keys_;
    size_t at_ = 0;
};

}  // namespace

std::string LineSetting::text() const {
    if (!raw.starts_with(kQuote)) {
        return raw;
    }
    check(items.size() == 1, ErrorKind::bad_argument, key, " takes one value, not ", items.size(),
          "; put all of it in the same quotes");
    return items.front();
}

std::optional<std::vector<LineSetting>> parse_setting_line(const std::string& line,
                                                           const std::set<std::string>& keys) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) {
        return std::nullopt;
    }
    const std::string key = trimmed(line.substr(0, equals));
    if (!keys.contains(key)) {
        check(!looks_like_key(key), ErrorKind::bad_argument, "there is no setting ", key,
              "; help lists them");
        return std::nullopt;
    }
    return LineReader(line, keys).read();
}

std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> words;
    std::istringstream in(line);
    for (std::string word; in >> word;) {
        words.push_back(word);
    }
    return words;
}

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(kSpaces);
    const size_t last = text.find_last_not_of(kSpaces);
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

}  // namespace flux2::cli
