#include "common/lora_tags.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOpening = "<lora:";
constexpr size_t kMaxNamesTold = 8;

// Takes a tag such as "<lora:blueprint:0.8>".
LoraTag parse_tag(const std::string& tag) {
    const std::string content = tag.substr(kOpening.size(), tag.size() - kOpening.size() - 1);
    const size_t colon = content.find(':');
    LoraTag parsed{.name = content.substr(0, colon)};
    check(!parsed.name.empty() && content.find('<') == std::string::npos, ErrorKind::bad_argument,
          "the tag ", tag, " is broken; use <lora:NAME:STRENGTH>");
    check(parsed.name.find_first_of("/\\") == std::string::npos &&
              parsed.name.find("..") == std::string::npos,
          ErrorKind::bad_argument, "the tag ", tag,
          " holds a path; use the file's name alone, without extension, or --lora FILE");
    if (colon != std::string::npos) {
        parsed.strength = parse_float(concat("the strength in ", tag), content.substr(colon + 1));
    }
    return parsed;
}

// How many letters to insert, remove or replace to make one text of the other.
size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);  // from the first i letters of a
    for (size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

bool is_lora_file(const fs::directory_entry& entry) {
    const std::string extension = to_lower(entry.path().extension().string());
    std::error_code ignored;
    return (extension == ".safetensors" || extension == ".gguf") && entry.is_regular_file(ignored);
}

}  // namespace

TaggedPrompt split_tags(const std::string& prompt) {
    TaggedPrompt split;
    size_t at = 0;
    for (size_t begin = 0; (begin = prompt.find(kOpening, at)) != std::string::npos;) {
        const size_t end = prompt.find('>', begin);
        check(end != std::string::npos, ErrorKind::bad_argument, "the prompt's tag ",
              prompt.substr(begin, 40), " has no end; use <lora:NAME:STRENGTH>");
        split.tags.push_back(parse_tag(prompt.substr(begin, end - begin + 1)));
        split.text += prompt.substr(at, begin - at);
        at = end + 1;
        if (split.text.empty() || split.text.ends_with(' ')) {
            at = std::min(prompt.find_first_not_of(' ', at), prompt.size());
        }
    }
    split.text += prompt.substr(at);
    if (!split.tags.empty() && at == prompt.size()) {
        split.text.erase(split.text.find_last_not_of(' ') + 1);
    }
    return split;
}

LoraFolder::LoraFolder(fs::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    fs::recursive_directory_iterator entry(folder_, fs::directory_options::skip_permission_denied,
                                           error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
        if (is_lora_file(*entry)) {
            entries_[entry->path().stem().string()].push_back({entry.depth(), entry->path()});
        }
    }
    check(!error, ErrorKind::bad_file, folder_.string(),
          ": cannot be searched for LoRA files: ", error.message());
    for (auto& [name, files] : entries_) {
        std::sort(files.begin(), files.end(), [](const Entry& a, const Entry& b) {
            return std::tie(a.depth, a.file) < std::tie(b.depth, b.file);
        });
    }
}

fs::path LoraFolder::find(const std::string& name) const {
    const auto found = entries_.find(name);
    check(found != entries_.end(), ErrorKind::bad_argument, "there is no LoRA '", name, "' in ",
          folder_.string(), closest_names(name));
    const std::vector<Entry>& files = found->second;
    check(files.size() == 1 || files[0].depth < files[1].depth, ErrorKind::bad_argument,
          "the LoRA '", name, "' may be ", files.front().file.string(), " or ",
          files.back().file.string(), "; rename one of them, or use --lora FILE");
    return files.front().file;
}

std::string LoraFolder::closest_names(const std::string& name) const {
    std::vector<std::pair<size_t, std::string>> names;
    for (const auto& [other, files] : entries_) {
        names.emplace_back(edit_distance(to_lower(name), to_lower(other)), other);
    }
    if (names.empty()) {
        return ", which holds no .safetensors or .gguf file";
    }
    std::sort(names.begin(), names.end());
    std::string text = names.size() > kMaxNamesTold ? "; the closest are " : "; it has ";
    for (size_t i = 0; i < std::min(names.size(), kMaxNamesTold); ++i) {
        text += (i == 0 ? "" : ", ") + names[i].second;
    }
    return text;
}

std::vector<AdaptedPrompt> resolve_tags(const std::vector<std::string>& prompts,
                                        const GenerateOptions& o) {
    std::optional<LoraFolder> folder;  // listed when the first tag is met
    std::vector<AdaptedPrompt> resolved;
    for (const std::string& prompt : prompts) {
        TaggedPrompt split = split_tags(prompt);
        AdaptedPrompt& adapted = resolved.emplace_back();
        adapted.text = std::move(split.text);
        for (const LoraTag& tag : split.tags) {
            check(!o.lora_folder.empty(), ErrorKind::bad_argument, "the prompt names the LoRA '",
                  tag.name, "'; add --lora-dir FOLDER with its file, or use --lora FILE");
            if (!folder) {
                folder.emplace(o.lora_folder);
            }
            Adapter& adapter = adapted.adapters.emplace_back();
            adapter.file = folder->find(tag.name);
            adapter.strength = tag.strength;
            apply_filters(o.adapter_filters, adapter);
        }
    }
    return resolved;
}

}  // namespace flux2::cli
