#include "base/settings_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "base/utf8.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxSettingsBytes = 1 << 20;

std::string trim(const std::string& text) {
    constexpr const char* kSpaces = " \t\r";
    const size_t begin = text.find_first_not_of(kSpaces);
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// A comment begins with # or ; at the start of a line or after a space.
std::string without_comment(const std::string& line) {
    bool is_quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
        is_quoted = line[i] == '"' ? !is_quoted : is_quoted;
        const bool begins = i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t';
        if (!is_quoted && begins && (line[i] == '#' || line[i] == ';')) {
            return line.substr(0, i);
        }
    }
    return line;
}

std::string without_quotes(const std::string& value) {
    const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    return is_quoted ? value.substr(1, value.size() - 2) : value;
}

// "--Max_VRAM" is max-vram.
std::string option_name(std::string key) {
    key.erase(0, key.find_first_not_of('-'));
    std::replace(key.begin(), key.end(), '_', '-');
    return key;
}

}  // namespace

std::string SettingsFile::place(const SettingsLine& line) const {
    return concat(path.string(), ":", line.number);
}

fs::path settings_folder() {
    for (const auto& [variable, below] :
         {std::pair{"XDG_CONFIG_HOME", ""}, {"APPDATA", ""}, {"HOME", ".config"}}) {
        const char* value = std::getenv(variable);
        if (value != nullptr && *value != '\0') {
            return fs::path(value) / below / "flux2";
        }
    }
    return {};
}

fs::path settings_path() {
    if (const char* named = std::getenv("FLUX2_CONFIG")) {
        check(*named == '\0' || file_exists(named), ErrorKind::bad_file, "FLUX2_CONFIG names ",
              named, ", and there is no such file");
        return named;
    }
    const fs::path folder = settings_folder();
    return folder.empty() ? fs::path() : folder / "flux2.ini";
}

SettingsFile read_settings_file(const fs::path& path) {
    SettingsFile file;
    file.path = path;
    if (path.empty() || !file_exists(path)) {
        return file;
    }
    std::istringstream in(decode_text_file(read_text_file(path, kMaxSettingsBytes), path.string()));
    std::string section;
    size_t number = 0;
    for (std::string raw; std::getline(in, raw);) {
        ++number;
        const std::string line = trim(without_comment(raw));
        if (line.empty()) {
            continue;
        }
        if (line.front() == '[') {
            section = line.back() == ']' ? trim(line.substr(1, line.size() - 2)) : "";
            check(!section.empty(), ErrorKind::bad_file, path.string(), ":", number, ": '", line,
                  "' is no section; expected a name in brackets such as [portrait]");
            file.sections.push_back(section);
            continue;
        }
        const size_t equals = line.find('=');
        const std::string key = equals == std::string::npos ? "" : trim(line.substr(0, equals));
        check(!key.empty(), ErrorKind::bad_file, path.string(), ":", number, ": '", line,
              "' is no setting; expected OPTION = VALUE such as width = 768");
        file.lines.push_back(
            {section, option_name(key), without_quotes(trim(line.substr(equals + 1))), number});
    }
    return file;
}

}  // namespace flux2
