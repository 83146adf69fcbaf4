#include "common/hub_reference.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "common/closest_names.hpp"

#include <algorithm>
#include <cctype>

namespace flux2::cli {
namespace {

constexpr const char* kUsualType = "Q4_K_M";

bool is_model_file(const std::string& name) {
    const std::string lower = to_lower(name);
    const bool is_vision = lower.substr(lower.rfind('/') + 1).starts_with("mmproj");
    return (lower.ends_with(".gguf") || lower.ends_with(".safetensors")) && !is_vision;
}

// "-00002-of-00005" in "x-00002-of-00005.gguf"; npos when there is none.
size_t part_mark(const std::string& name) {
    constexpr std::string_view kPattern = "-00000-of-00000";
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || dot < kPattern.size()) {
        return std::string::npos;
    }
    const size_t at = dot - kPattern.size();
    for (size_t i = 0; i < kPattern.size(); ++i) {
        const bool is_digit = std::isdigit(static_cast<unsigned char>(name[at + i])) != 0;
        if (kPattern[i] == '0' ? !is_digit : name[at + i] != kPattern[i]) {
            return std::string::npos;
        }
    }
    return at;
}

bool is_later_part(const std::string& name) {
    const size_t mark = part_mark(name);
    return mark != std::string::npos && name.substr(mark, 6) != "-00001";
}

// Whether the type is a word of the name: Q4_K is none of Q4_K_M.
bool has_type(const std::string& name, const std::string& type) {
    const std::string lower = to_lower(name);
    const std::string word = to_lower(type);
    const auto ends_word = [&](size_t at) {
        return at >= lower.size() ||
               (std::isalnum(static_cast<unsigned char>(lower[at])) == 0 && lower[at] != '_');
    };
    for (size_t at = lower.find(word); at != std::string::npos; at = lower.find(word, at + 1)) {
        if ((at == 0 || ends_word(at - 1)) && ends_word(at + word.size())) {
            return true;
        }
    }
    return false;
}

std::string folder_of(const std::string& name) {
    return name.substr(0, name.rfind('/') + 1);  // also when there is no slash
}

}  // namespace

HubReference parse_hub_reference(const std::string& text) {
    const size_t colon = text.find(':');
    const HubReference reference = {text.substr(0, colon),
                                    colon == std::string::npos ? "" : text.substr(colon + 1)};
    const size_t slash = reference.repository.find('/');
    check(slash != std::string::npos && slash > 0 && slash + 1 < reference.repository.size() &&
              reference.repository.find('/', slash + 1) == std::string::npos,
          ErrorKind::bad_argument, "'", text,
          "' is no repository; expected OWNER/NAME, OWNER/NAME:TYPE or OWNER/NAME:FILE");
    return reference;
}

std::string choose_hub_file(const HubReference& reference, const std::vector<std::string>& names) {
    std::vector<std::string> candidates;
    for (const std::string& name : names) {
        const std::string base = name.substr(name.rfind('/') + 1);
        if (!reference.what.empty() && (name == reference.what || base == reference.what)) {
            return name;
        }
        if (is_model_file(name) && !is_later_part(name)) {
            candidates.push_back(name);
        }
    }
    std::sort(candidates.begin(), candidates.end());
    check(!candidates.empty(), ErrorKind::bad_file, reference.repository,
          ": holds no .gguf or .safetensors file");
    std::vector<std::string> typed;
    const std::string& type = reference.what.empty() ? kUsualType : reference.what;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(typed),
                 [&](const std::string& name) { return has_type(name, type); });
    if (typed.empty() && reference.what.empty()) {
        const auto gguf = std::find_if(candidates.begin(), candidates.end(), [](const auto& name) {
            return to_lower(name).ends_with(".gguf");
        });
        return gguf == candidates.end() ? candidates.front() : *gguf;
    }
    check(!typed.empty(), ErrorKind::bad_file, reference.repository, ": has neither a file nor a ",
          "type '", reference.what, "'", closest_names(reference.what, candidates));
    check(typed.size() == 1 || reference.what.empty(), ErrorKind::bad_file, reference.repository,
          ": has several files of type ", reference.what, ", ", typed.front(), " and ",
          typed.back(), " among them; name the one you mean");
    return typed.front();
}

std::vector<std::string> companions_of(const std::string& file,
                                       const std::vector<std::string>& names) {
    std::vector<std::string> companions;
    const size_t mark = part_mark(file);
    const bool is_safetensors = to_lower(file).ends_with(".safetensors");
    const std::string folder = folder_of(file);
    for (const std::string& name : names) {
        const std::string base = name.substr(folder_of(name).size());
        const bool is_beside = folder_of(name) == folder && name != file;
        const bool is_part = mark != std::string::npos && part_mark(name) == mark &&
                             name.substr(0, mark) == file.substr(0, mark);
        const bool describes =
            is_safetensors &&
            (base == "config.json" || base == "tokenizer.json" || base == "vocab.json" ||
             base == "merges.txt" || base == "tekken.json" || base == "tokenizer_config.json");
        const bool is_index = is_safetensors && mark != std::string::npos &&
                              base.ends_with(".safetensors.index.json");
        if (is_beside && (is_part || describes || is_index)) {
            companions.push_back(name);
        }
    }
    return companions;
}

}  // namespace flux2::cli
