#include "adapters/adapter_facts.hpp"

#include "base/letter_case.hpp"
#include "base/utf8.hpp"
#include "checkpoints/variant.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>

namespace flux2 {
namespace {

using nlohmann::json;

constexpr size_t kMaxCharacters = 200;
constexpr size_t kMaxJsonBytes = 4 << 20;  // lists of tags are long
constexpr size_t kMaxTags = 5;

// A text from a file as a single line for a terminal: no control characters, nothing that is not
// UTF-8, and not too long.
std::string as_line(std::string_view text) {
    std::string line;
    size_t n = 0;
    for (size_t at = 0; at < text.size();) {
        if (++n > kMaxCharacters) {
            return line + "...";
        }
        const auto c = next_code_point(text, at);
        const bool control = c && (*c < 0x20 || (*c >= 0x7f && *c < 0xa0));
        append_utf8(line, !c ? U'?' : control ? U' ' : *c);
    }
    return line;
}

std::string text_of(const Metadata& metadata, std::string_view key) {
    const MetadataValue* value = metadata.find(key);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return text == nullptr || *text == "None" ? std::string() : *text;
}

// The first of these keys that has a text.
std::string first_of(const Metadata& metadata, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        if (std::string text = text_of(metadata, key); !text.empty()) {
            return text;
        }
    }
    return {};
}

// The JSON object in a value; empty when there is none.
json object_of(const Metadata& metadata, std::string_view key) {
    const std::string text = text_of(metadata, key);
    if (text.empty() || text.size() > kMaxJsonBytes) {
        return json::object();
    }
    json object = parse_json(text);
    return object.is_object() ? object : json::object();
}

// A text or a whole number in an object, as text.
std::string field_of(const json& object, const char* name) {
    const auto found = object.find(name);
    if (found == object.end()) {
        return {};
    }
    return found->is_string()           ? found->get<std::string>()
           : found->is_number_integer() ? found->dump()
                                        : std::string();
}

// The most frequent tags of all data sets: {"set": {"tag": count}}.
std::string frequent_tags(const json& sets) {
    std::map<std::string, int64_t> counts;
    for (const auto& [set, tags] : sets.items()) {
        for (const auto& [tag, count] : tags.items()) {
            if (tags.is_object() && count.is_number_integer()) {
                counts[tag] = std::max(counts[tag], count.get<int64_t>());
            }
        }
    }
    std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    for (size_t i = 0; i < std::min(sorted.size(), kMaxTags); ++i) {
        text += (i == 0 ? "" : ", ") + sorted[i].first;
    }
    return text;
}

std::string trigger_words(const Metadata& metadata) {
    const std::string given = first_of(
        metadata, {"modelspec.trigger_phrase", "trigger_words", "trigger_word", "instance_prompt"});
    return given.empty() ? frequent_tags(object_of(metadata, "ss_tag_frequency")) : given;
}

// Where the model itself is named, as a file or a repository.
constexpr std::array kModelNames = {"ss_sd_model_name", "base_model_name_or_path", "base_model",
                                    "model", "general.base_model.0.name"};

}  // namespace

std::vector<std::pair<std::string, std::string>> adapter_facts(const Metadata& metadata) {
    std::vector<std::pair<std::string, std::string>> facts;
    const auto add = [&](const char* what, const std::string& text) {
        const std::string line = as_line(text);
        if (line.find_first_not_of(' ') != std::string::npos) {
            facts.emplace_back(what, line);
        }
    };
    const json software = object_of(metadata, "software");
    const json training = object_of(metadata, "training_info");
    const auto either = [](const std::string& first, const std::string& second) {
        return first.empty() ? second : first;
    };
    add("title", first_of(metadata, {"modelspec.title", "ss_output_name", "name", "general.name"}));
    add("trigger words", trigger_words(metadata));
    add("trained on", first_of(metadata, {"ss_base_model_version", "modelspec.architecture",
                                          "base_model_name_or_path", "base_model", "model"}));
    add("model file", text_of(metadata, "ss_sd_model_name"));
    add("steps", either(text_of(metadata, "ss_steps"), field_of(training, "step")));
    add("epochs", either(text_of(metadata, "ss_epoch"), field_of(training, "epoch")));
    add("resolution", text_of(metadata, "modelspec.resolution"));
    add("trainer", either(field_of(software, "name"), text_of(metadata, "ss_network_module")));
    add("author", first_of(metadata, {"modelspec.author", "general.author"}));
    add("date", text_of(metadata, "modelspec.date"));
    add("license", first_of(metadata, {"modelspec.license", "general.license"}));
    add("description", first_of(metadata, {"modelspec.description", "general.description"}));
    add("comment", text_of(metadata, "ss_training_comment"));
    return facts;
}

std::optional<bool> trained_on_base(const Metadata& metadata) {
    std::optional<bool> answer;
    for (const char* key : kModelNames) {
        const std::string name = to_lower(text_of(metadata, key));
        if (name.find("klein") != std::string::npos) {
            answer = answer.value_or(false) || contains_word(name, "base");
        }
    }
    // These are the same for both in some trainers, so that only the word itself tells.
    for (const char* key : {"ss_base_model_version", "modelspec.architecture"}) {
        if (contains_word(text_of(metadata, key), "base")) {
            answer = true;
        }
    }
    return answer;
}

}  // namespace flux2
