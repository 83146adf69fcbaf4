// LoRAs that a prompt names itself, as in other programs: "a house <lora:blueprint:0.8>".
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flux2::cli {

struct LoraTag {
    std::string name;
    float strength = 1;  // when the tag has none
};

struct TaggedPrompt {
    std::string text;  // without its tags and the spaces that they leave doubled
    std::vector<LoraTag> tags;
};

// Throws bad_argument for a broken tag, and for one with a path instead of a name.
TaggedPrompt split_tags(const std::string& prompt);

// The LoRA files of a folder and of the folders in it, by their names without extension. Links to
// folders are not followed.
class LoraFolder {
  public:
    // Lists the folder. Throws bad_file when it cannot be read.
    explicit LoraFolder(std::filesystem::path folder);

    // NAME.safetensors or NAME.gguf, of several the one in the fewest subfolders. Throws
    // bad_argument, with the closest names, when there is none, and for two equally good ones.
    std::filesystem::path find(const std::string& name) const;
    // All names, sorted.
    std::vector<std::string> names() const;

  private:
    struct Entry {
        int depth;  // in how many subfolders
        std::filesystem::path file;
    };

    std::filesystem::path folder_;
    std::map<std::string, std::vector<Entry>> entries_;
};

}  // namespace flux2::cli
