#include "common/user_folders.hpp"

#include "base/system.hpp"

#include <cstdlib>
#include <system_error>
#include <utility>

namespace flux2::cli {

namespace fs = std::filesystem;

fs::path shared_file(const std::string& name) {
    const fs::path source_tree = FLUX2_SOURCE_FOLDER;
    for (const fs::path& path :
         {program_folder() / ".." / "share" / "flux2" / name, source_tree / name}) {
        std::error_code ignored;
        if (fs::exists(path, ignored)) {
            return path;
        }
    }
    return {};
}

fs::path own_models_folder() {
    for (const auto& [variable, below] :
         {std::pair{"XDG_DATA_HOME", ""}, {"LOCALAPPDATA", ""}, {"HOME", ".local/share"}}) {
        const char* value = std::getenv(variable);
        if (value != nullptr && *value != '\0') {
            return fs::path(value) / below / "flux2" / "models";
        }
    }
    return {};
}

fs::path default_cache_folder() {
    // Variables of Linux, Windows and macOS, in this order.
    for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""},
                                          {"LOCALAPPDATA", ""},
                                          {"HOME", "Library/Caches"},
                                          {"HOME", ".cache"}}) {
        const char* value = std::getenv(variable);
        const fs::path folder = value == nullptr ? fs::path() : fs::path(value) / below;
        std::error_code ignored;
        const bool made_here = std::string(below) == ".cache";
        if (value != nullptr && *value != '\0' && (made_here || fs::exists(folder, ignored))) {
            return folder / "flux2";
        }
    }
    return {};
}

}  // namespace flux2::cli
