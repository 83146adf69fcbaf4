// JSON files beside a checkpoint, with errors that name the file.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

// Parses text from an untrusted source. Returns a discarded value (is_discarded) when it is not
// valid JSON, or nested so deeply that copying it recursively would overflow the stack.
nlohmann::json parse_json(const std::string& text);

// Throws bad_file when the file is missing or no valid JSON object.
nlohmann::json read_json(const std::filesystem::path& path);

// Nothing when the file does not exist. Throws as read_json otherwise.
std::optional<nlohmann::json> read_json_if_present(const std::filesystem::path& path);

// The value of a key, or nothing when it is absent or null. Throws bad_file, naming file and key,
// when it has another type.
template <typename T>
std::optional<T> get_json(const nlohmann::json& object, const std::string& key,
                          const std::filesystem::path& file);

}  // namespace flux2
