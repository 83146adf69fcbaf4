#include "formats/metadata.hpp"

#include "base/check.hpp"

#include <limits>
#include <type_traits>

namespace flux2 {
namespace {

template <typename T>
constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

}  // namespace

void Metadata::wrong_type(std::string_view key, const char* expected) const {
    fail(ErrorKind::bad_file, file_, ": metadata key ", key, " is not ", expected,
         "; the file is broken or was written by an unknown program");
}

template <typename T>
int64_t Metadata::to_int64(std::string_view key, T value) const {
    if constexpr (std::is_same_v<T, uint64_t>) {
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            wrong_type(key, "a number below 2^63");
        }
    }
    return static_cast<int64_t>(value);
}

void Metadata::set(const std::string& key, MetadataValue value) {
    const auto [found, added] = index_.try_emplace(key, entries_.size());
    if (added) {
        entries_.emplace_back(key, std::move(value));
    } else {
        entries_[found->second].second = std::move(value);
    }
}

const MetadataValue* Metadata::find(std::string_view key) const {
    const auto found = index_.find(std::string(key));
    return found == index_.end() ? nullptr : &entries_[found->second].second;
}

std::optional<std::string> Metadata::get_string(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (const auto* text = std::get_if<std::string>(value)) {
        return *text;
    }
    wrong_type(key, "a string");
}

std::optional<int64_t> Metadata::get_int(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::visit(
        [&](const auto& v) -> int64_t {
            if constexpr (is_integer<std::decay_t<decltype(v)>>) {
                return to_int64(key, v);
            } else {
                wrong_type(key, "an integer");
            }
        },
        *value);
}

std::optional<double> Metadata::get_float(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::visit(
        [&](const auto& v) -> double {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_floating_point_v<T> || is_integer<T>) {
                return static_cast<double>(v);
            } else {
                wrong_type(key, "a number");
            }
        },
        *value);
}

std::optional<bool> Metadata::get_bool(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (const auto* flag = std::get_if<bool>(value)) {
        return *flag;
    }
    wrong_type(key, "a boolean");
}

std::optional<std::vector<int64_t>> Metadata::get_ints(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::visit(
        [&](const auto& v) -> std::vector<int64_t> {
            if constexpr (requires { typename std::decay_t<decltype(v)>::value_type; }) {
                using T = typename std::decay_t<decltype(v)>::value_type;
                if constexpr (is_integer<T> && !std::is_same_v<T, char>) {
                    std::vector<int64_t> numbers;
                    for (const T number : v) {
                        numbers.push_back(to_int64(key, number));
                    }
                    return numbers;
                }
            }
            wrong_type(key, "an array of integers");
        },
        *value);
}

const std::vector<std::string>* Metadata::get_strings(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (value == nullptr) {
        return nullptr;
    }
    if (const auto* strings = std::get_if<std::vector<std::string>>(value)) {
        return strings;
    }
    wrong_type(key, "an array of strings");
}

}  // namespace flux2
