#include "checkpoints/model_config.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "formats/json_file.hpp"

#include <filesystem>
#include <optional>

namespace flux2 {
namespace fs = std::filesystem;

nlohmann::json read_model_config(const TensorSource& source) {
    const fs::path& path = source.path();
    const fs::path folder = is_folder(path) ? path : path.parent_path();
    for (const fs::path& file :
         {folder / (path.stem().string() + ".config.json"), folder / "config.json"}) {
        if (const auto json = read_json_if_present(file)) {
            const auto text = get_json<nlohmann::json>(*json, "text_config", file);
            return text && text->is_object() ? *text : *json;
        }
    }
    return nlohmann::json::object();
}

std::string architecture_of(const TensorSource& source) {
    return source.metadata().get_string("general.architecture").value_or("");
}

int64_t configured_head_dim(const TensorSource& source) {
    constexpr int64_t kMistral = 128;
    constexpr int64_t kMax = 65536;  // for broken files
    const auto key = source.metadata().get_int(architecture_of(source) + ".attention.key_length");
    const auto entry = get_json<int64_t>(read_model_config(source), "head_dim",
                                         source.path().string() + " (its configuration)");
    const int64_t size = key ? *key : entry.value_or(kMistral);
    check(size > 0 && size <= kMax && size % 2 == 0, ErrorKind::bad_file, source.path().string(),
          ": says its heads are ", size, " wide, expected an even number up to ", kMax);
    return size;
}

}  // namespace flux2
