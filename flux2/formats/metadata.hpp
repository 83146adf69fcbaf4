// Key-value pairs of a tensor file, with their GGUF types kept, and getters that check them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace flux2 {

template <typename... T>
using ScalarOrArray = std::variant<T..., std::vector<T>...>;

// The alternatives are GGUF's value types; safetensors metadata is strings only.
using MetadataValue = ScalarOrArray<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float,
                                    bool, std::string, uint64_t, int64_t, double>;

// In the order of the file. Getters give nothing for an absent key and throw bad_file for a value
// of another type or out of range; any integer type serves where an integer is asked for.
class Metadata {
  public:
    Metadata() = default;
    // `file` is named in errors.
    explicit Metadata(std::string file) : file_(std::move(file)) {}

    // Adds a pair or replaces the value of an existing key.
    void set(const std::string& key, MetadataValue value);
    bool contains(std::string_view key) const { return find(key) != nullptr; }
    const MetadataValue* find(std::string_view key) const;
    const std::vector<std::pair<std::string, MetadataValue>>& entries() const { return entries_; }

    std::optional<std::string> get_string(std::string_view key) const;
    std::optional<int64_t> get_int(std::string_view key) const;
    std::optional<double> get_float(std::string_view key) const;
    std::optional<bool> get_bool(std::string_view key) const;
    std::optional<std::vector<int64_t>> get_ints(std::string_view key) const;
    // Borrowed, since vocabularies are large; null for an absent key.
    const std::vector<std::string>* get_strings(std::string_view key) const;

  private:
    template <typename T>
    int64_t to_int64(std::string_view key, T value) const;
    [[noreturn]] void wrong_type(std::string_view key, const char* expected) const;

    std::string file_;
    std::vector<std::pair<std::string, MetadataValue>> entries_;
    std::unordered_map<std::string, size_t> index_;
};

}  // namespace flux2
