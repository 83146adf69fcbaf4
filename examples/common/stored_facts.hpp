// Reads single facts out of what a picture stores about how it was made.
#pragma once

#include "base/check.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <type_traits>

namespace flux2::cli {

// Whether a number can be converted to T: the JSON library does not check.
template <typename T>
bool in_range(const nlohmann::json& value) {
    if constexpr (std::is_same_v<T, bool>) {
        return value.is_boolean();
    } else if constexpr (std::is_integral_v<T>) {
        constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
        if (value.is_number_unsigned()) {
            return value.get<uint64_t>() <= kMost;
        }
        constexpr auto kLeast = static_cast<int64_t>(std::numeric_limits<T>::min());
        return value.is_number_integer() && value.get<int64_t>() >= kLeast &&
               (value.get<int64_t>() < 0 || value.get<uint64_t>() <= kMost);
    } else if constexpr (std::is_floating_point_v<T>) {
        constexpr double kMost = std::numeric_limits<T>::max();
        return value.is_number() && std::abs(value.get<double>()) <= kMost;
    }
    return true;
}

// Nothing when there is no such fact or it is null. Throws bad_file, naming the picture, for one of
// another type.
template <typename T>
std::optional<T> find_fact(const nlohmann::json& facts, const char* key,
                           const std::filesystem::path& picture) {
    if (!facts.contains(key) || facts[key].is_null()) {
        return std::nullopt;
    }
    try {
        if (in_range<T>(facts[key])) {
            return facts[key].get<T>();
        }
    } catch (const nlohmann::json::exception&) {
        // reported below
    }
    fail(ErrorKind::bad_file, picture.string(), ": its settings are broken at '", key,
         "'; give them on the command line instead");
}

template <typename T>
T get_fact(const nlohmann::json& facts, const char* key, const T& otherwise,
           const std::filesystem::path& picture) {
    return find_fact<T>(facts, key, picture).value_or(otherwise);
}

}  // namespace flux2::cli
