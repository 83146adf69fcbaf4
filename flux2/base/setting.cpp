#include <flux2/setting.hpp>
#include "base/check.hpp"

#include <array>
#include <optional>
#include <ostream>

namespace flux2 {
namespace {

// In the order of the enum.
constexpr std::array kNames = {"transformer",  "text_encoder", "vae",        "taesd",
                               "folder",       "device",       "type",       "variant",
                               "cache_folder", "split",        "fit_size",   "reference_pixels",
                               "init",         "inpaint_area", "adapters",   "cfg_scale",
                               "alpha",        "tokenizer",    "mask_invert"};
static_assert(kNames.size() == static_cast<size_t>(Setting::mask_invert) + 1);

// The one that is named at this place of a text.
std::optional<Setting> setting_at(const std::string& text, size_t at) {
    for (size_t i = 0; i < kNames.size(); ++i) {
        const auto setting = static_cast<Setting>(i);
        const std::string named = concat(setting);
        if (text.compare(at, named.size(), named) == 0) {
            return setting;
        }
    }
    return std::nullopt;
}

}  // namespace

const char* to_string(Setting setting) {
    return kNames.at(static_cast<size_t>(setting));
}

std::ostream& operator<<(std::ostream& out, Setting setting) {
    return out << "`" << to_string(setting) << "`";
}

std::string worded(const std::string& text, const SettingWording& wording) {
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const auto setting = text[at] == '`' ? setting_at(text, at) : std::nullopt;
        result += setting ? wording(*setting) : text.substr(at, 1);
        at += setting ? concat(*setting).size() : 1;
    }
    return result;
}

}  // namespace flux2
