#include "checkpoints/tokenizer_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/split_patterns.hpp"
#include "formats/json_file.hpp"

#include <sstream>
#include <string>
#include <utility>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr size_t kMaxMergesBytes = 64 << 20;  // Qwen3's merges.txt has 1.7 MB

// A map of tokens to ids and nothing else.
bool is_vocabulary(const json& object) {
    return !object.empty() && object.begin()->is_number_integer();
}

// A line with the version, then a line for each merge, best first.
json read_merges(const fs::path& file) {
    std::istringstream lines(read_text_file(file, kMaxMergesBytes));
    json merges = json::array();
    bool first = true;
    for (std::string line; std::getline(lines, line); first = false) {
        if (line.ends_with('\r')) {
            line.pop_back();
        }
        if (!line.empty() && !(first && line.starts_with("#version"))) {
            merges.push_back(line);
        }
    }
    return merges;
}

// {"151643": {"content": "<|endoftext|>", "special": true}, ...}
json tokens_of_config(const json& config, const fs::path& file) {
    json added = json::array();
    const json tokens =
        get_json<json>(config, "added_tokens_decoder", file).value_or(json::object());
    for (const auto& [id, token] : tokens.items()) {
        const bool number = !id.empty() && id.size() < 10 &&
                            id.find_first_not_of("0123456789") == std::string::npos;
        check(number && token.is_object(), ErrorKind::bad_file, file.string(),
              ": added_tokens_decoder has an entry '", id, "', expected the id of a token");
        added.push_back({{"id", std::stoll(id)},
                         {"content", get_json<std::string>(token, "content", file).value_or("")},
                         {"special", get_json<bool>(token, "special", file).value_or(false)}});
    }
    return added;
}

json read_added_tokens(const fs::path& folder) {
    json added = json::array();
    const fs::path config = folder / "tokenizer_config.json";
    if (const auto read = read_json_if_present(config)) {
        added = tokens_of_config(*read, config);
    }
    if (added.empty()) {
        const json ids =
            read_json_if_present(folder / "added_tokens.json").value_or(json::object());
        for (const auto& [token, id] : ids.items()) {
            added.push_back({{"id", id}, {"content", token}});
        }
    }
    return added;
}

}  // namespace

fs::path find_tokenizer_file(const fs::path& folder) {
    if (file_exists(folder / "tokenizer.json")) {
        return folder / "tokenizer.json";
    }
    const bool pair = file_exists(folder / "vocab.json") && file_exists(folder / "merges.txt");
    return pair ? folder / "vocab.json" : fs::path();
}

fs::path find_tokenizer_beside(const fs::path& checkpoint) {
    const fs::path folder = is_folder(checkpoint) ? checkpoint : checkpoint.parent_path();
    const fs::path beside = find_tokenizer_file(folder);
    return beside.empty() ? find_tokenizer_file(folder / ".." / "tokenizer") : beside;
}

std::vector<fs::path> tokenizer_files(const fs::path& file) {
    std::vector<fs::path> files = {file};
    for (const char* name : {"merges.txt", "tokenizer_config.json", "added_tokens.json"}) {
        if (fs::exists(file.parent_path() / name)) {
            files.push_back(file.parent_path() / name);
        }
    }
    return files;
}

json read_tokenizer_file(const fs::path& file) {
    json content = read_json(file);
    if (!is_vocabulary(content)) {
        return content;
    }
    const fs::path folder = file.parent_path();
    json added = read_added_tokens(folder);
    check(!added.empty(), ErrorKind::bad_file, file.string(),
          ": nothing beside it names the special tokens; put tokenizer_config.json of the same "
          "model there, or use its tokenizer.json");
    json tokenizer = {{"model", {{"type", "BPE"}}}};
    tokenizer["model"]["vocab"] = std::move(content);
    tokenizer["model"]["merges"] = read_merges(folder / "merges.txt");
    tokenizer["added_tokens"] = std::move(added);
    // The pair does not say how text is split; only Qwen's tokenizers come as one.
    tokenizer["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", kQwenSplit}}}};
    return tokenizer;
}

}  // namespace flux2
