// Descriptions of adapter files; implements the part of flux2.hpp about them.
#include <flux2/flux2.hpp>
#include "adapters/adapter_file.hpp"
#include "base/check.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// A tensor's place in its network: "double_blocks" and 3, or its module alone and -1.
struct Place {
    std::string name;
    int block = -1;
};

bool is_number(const std::string& text) {
    constexpr size_t kMaxDigits = 4;
    return !text.empty() && text.size() <= kMaxDigits &&
           text.find_first_not_of("0123456789") == std::string::npos;
}

Place place_of(const std::string& tensor) {
    const size_t dot = tensor.find('.');
    const size_t end = dot == std::string::npos ? dot : tensor.find('.', dot + 1);
    if (end != std::string::npos) {
        const std::string number = tensor.substr(dot + 1, end - dot - 1);
        if (is_number(number)) {
            return {tensor.substr(0, dot), std::stoi(number)};
        }
    }
    return {tensor.substr(0, tensor.rfind('.'))};
}

// "0-4, 7"
std::string ranges(const std::set<int>& numbers) {
    std::string text;
    for (auto first = numbers.begin(); first != numbers.end();) {
        auto last = first;
        while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) {
            ++last;
        }
        text += concat(text.empty() ? "" : ", ", *first);
        if (last != first) {
            text += concat("-", *last);
        }
        first = std::next(last);
    }
    return text;
}

// "8 modules each of double blocks 0-4, img_in"
std::string touched_places(const std::vector<AdapterModule>& modules, Part part) {
    std::map<std::string, std::map<int, size_t>> counts;  // modules by name of blocks and block
    std::set<std::string> alone;
    for (const AdapterModule& module : modules) {
        const Place place = place_of(module.tensor);
        if (module.part == part && place.block >= 0) {
            ++counts[place.name][place.block];
        } else if (module.part == part) {
            alone.insert(place.name);
        }
    }
    std::vector<std::string> texts;
    for (const auto& [name, blocks] : counts) {
        std::map<size_t, std::set<int>> blocks_with;  // by number of modules
        for (const auto& [block, n_modules] : blocks) {
            blocks_with[n_modules].insert(block);
        }
        std::string words = name;
        std::replace(words.begin(), words.end(), '_', ' ');
        for (const auto& [n_modules, numbers] : blocks_with) {
            texts.push_back(concat(n_modules, n_modules == 1 ? " module" : " modules",
                                   numbers.size() == 1 ? " of " : " each of ", words, " ",
                                   ranges(numbers)));
        }
    }
    texts.insert(texts.end(), alone.begin(), alone.end());
    std::string all;
    for (const std::string& text : texts) {
        all += (all.empty() ? "" : ", ") + text;
    }
    return all;
}

std::string touches(const std::vector<AdapterModule>& modules) {
    std::string text;
    for (const Part part : kAllParts) {
        if (const std::string places = touched_places(modules, part); !places.empty()) {
            text += concat(text.empty() ? "" : "; ", to_string(part), ": ", places);
        }
    }
    return text;
}

}  // namespace

bool is_adapter(const fs::path& path) {
    try {
        return is_adapter(TensorSource::open(path));
    } catch (const Error&) {
        return false;
    }
}

AdapterInfo inspect_adapter(const fs::path& path) {
    const AdapterFile file = AdapterFile::open(path);
    AdapterInfo info;
    info.path = path;
    info.kinds = file.kinds();
    info.dialect = file.dialect();
    info.format = file.source().format() == FileFormat::gguf ? "GGUF" : "safetensors";
    info.ranks = file.ranks();
    info.made_for = file.made_for();
    info.touches = touches(file.modules());
    info.facts = file.facts();
    for (const UnusedKey& unused : file.unused()) {
        info.unused.push_back(unused.key + ": " + unused.reason);
    }
    info.n_modules = static_cast<int64_t>(file.modules().size());
    for (const MappedFile& mapped : file.source().files()) {
        info.size_bytes += mapped.bytes().size();
    }
    return info;
}

}  // namespace flux2
