#include "formats/json_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/utf8.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {
namespace {

constexpr size_t kMaxJsonBytes = 64 << 20;  // Qwen3's tokenizer.json has 11 MB

}  // namespace

nlohmann::json parse_json(const std::string& text) {
    constexpr int kMaxDepth = 32;
    bool too_deep = false;
    const auto keep = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    nlohmann::json parsed = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
    return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

nlohmann::json read_json(const std::filesystem::path& path) {
    const std::string text = read_text_file(path, kMaxJsonBytes);
    const nlohmann::json json = parse_json(text);
    check(json.is_object(), ErrorKind::bad_file, path.string(),
          ": is not a valid JSON object; download it again");
    return json;
}

std::optional<nlohmann::json> read_json_if_present(const std::filesystem::path& path) {
    if (!file_exists(path)) {
        return std::nullopt;
    }
    return read_json(path);
}

template <typename T>
std::optional<T> get_json(const nlohmann::json& object, const std::string& key,
                          const std::filesystem::path& file) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) {
        return std::nullopt;
    }
    try {
        return found->get<T>();
    } catch (const nlohmann::json::exception&) {
        fail(ErrorKind::bad_file, file.string(), ": ", key, " has an unexpected value ",
             utf8_start(found->dump(), 60));
    }
}

template std::optional<bool> get_json(const nlohmann::json&, const std::string&,
                                      const std::filesystem::path&);
template std::optional<int64_t> get_json(const nlohmann::json&, const std::string&,
                                         const std::filesystem::path&);
template std::optional<double> get_json(const nlohmann::json&, const std::string&,
                                        const std::filesystem::path&);
template std::optional<std::string> get_json(const nlohmann::json&, const std::string&,
                                             const std::filesystem::path&);
template std::optional<std::vector<int64_t>> get_json(const nlohmann::json&, const std::string&,
                                                      const std::filesystem::path&);
template std::optional<nlohmann::json> get_json(const nlohmann::json&, const std::string&,
                                                const std::filesystem::path&);

}  // namespace flux2
