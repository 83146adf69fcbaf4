#include "common/lora_tags.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "base/parse_number.hpp"
#include "common/closest_names.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOpening = "<lora:";

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
    if (found == entries_.end()) {
        fail(ErrorKind::bad_argument, "there is no LoRA '", name, "' in ", folder_.string(),
             entries_.empty() ? ", which holds no .safetensors or .gguf file"
                              : closest_names(name, names()));
    }
    const std::vector<Entry>& files = found->second;
    check(files.size() == 1 || files[0].depth < files[1].depth, ErrorKind::bad_argument,
          "the LoRA '", name, "' may be ", files.front().file.string(), " or ",
          files.back().file.string(), "; rename one of them, or use --lora FILE");
    return files.front().file;
}

std::vector<std::string> LoraFolder::names() const {
    std::vector<std::string> names;
    for (const auto& [name, files] : entries_) {
        names.push_back(name);
    }
    return names;
}

}  // namespace flux2::cli
