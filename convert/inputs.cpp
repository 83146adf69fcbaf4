#include "inputs.hpp"

#include "base/check.hpp"
#include "base/file.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace flux2::convert {
namespace fs = std::filesystem;
namespace {

bool is_diffusers_folder(const fs::path& path) {
    return file_exists(path / "model_index.json");
}

// Files that are read in addition to a model's tensors.
constexpr std::array kReadBeside = {
    "config.json", "hf_quant_config.json",  "model_index.json",  "tokenizer.json",     "vocab.json",
    "merges.txt",  "tokenizer_config.json", "added_tokens.json", "chat_template.jinja"};

fs::path folder_of(const fs::path& path) {
    return fs::is_directory(path) ? path : path.parent_path();
}

// The files that a conversion may read; they need not exist. `tokenizer` may be empty.
std::vector<fs::path> files_read(const Checkpoint& checkpoint, const fs::path& tokenizer) {
    const fs::path& path = checkpoint.source().path();
    const fs::path folder = folder_of(path);
    std::vector<fs::path> files = {path, tokenizer,
                                   folder / (path.stem().string() + ".config.json")};
    for (const MappedFile& file : checkpoint.source().files()) {
        files.push_back(file.path());
    }
    if (checkpoint.source().files().size() > 1) {  // the index of shards is among these
        const std::vector<fs::path> others = checkpoints_in(folder.empty() ? "." : folder);
        files.insert(files.end(), others.begin(), others.end());
    }
    for (const fs::path& place :
         {folder, folder / "..", folder / ".." / "tokenizer", folder_of(tokenizer)}) {
        for (const char* name : kReadBeside) {
            files.push_back(place / name);
        }
    }
    return files;
}

}  // namespace

std::vector<Checkpoint> open_inputs(const std::vector<fs::path>& inputs) {
    constexpr std::array<std::string_view, 3> kFolders = {"transformer", "text_encoder", "vae"};
    std::vector<Checkpoint> checkpoints;
    for (const fs::path& input : inputs) {
        if (!is_diffusers_folder(input)) {
            for (Checkpoint& checkpoint : Checkpoint::open_all(input)) {
                checkpoints.push_back(std::move(checkpoint));
            }
            continue;
        }
        for (const std::string_view folder : kFolders) {
            check(is_folder(input / folder), ErrorKind::bad_file, input.string(),
                  ": is a diffusers folder without ", folder, "/; download the rest of it");
            checkpoints.push_back(Checkpoint::open(input / folder));
        }
    }
    return checkpoints;
}

std::vector<fs::path> name_outputs(const std::vector<fs::path>& inputs,
                                   const std::vector<Checkpoint>& checkpoints,
                                   const fs::path& output) {
    const bool single = checkpoints.size() == 1 && !is_diffusers_folder(inputs.front());
    std::vector<fs::path> outputs;
    if (single) {
        check(!is_folder(output), ErrorKind::bad_argument, output.string(),
              " is a folder; give the name of the file to write, such as ",
              (output / facts_of(checkpoints.front().part()).file_name).string());
        outputs.push_back(output);
    } else {
        check(!file_exists(output) || is_folder(output), ErrorKind::bad_argument, output.string(),
              " is a file; several parts need a folder to go to");
        for (const Checkpoint& checkpoint : checkpoints) {
            outputs.push_back(output / facts_of(checkpoint.part()).file_name);
        }
    }
    return outputs;
}

void check_outputs(const std::vector<fs::path>& outputs, const std::vector<Checkpoint>& checkpoints,
                   const fs::path& tokenizer, const std::vector<UsedAdapter>& adapters) {
    std::vector<fs::path> inputs;
    for (const Checkpoint& checkpoint : checkpoints) {
        const std::vector<fs::path> files = files_read(checkpoint, tokenizer);
        inputs.insert(inputs.end(), files.begin(), files.end());
    }
    for (const UsedAdapter& adapter : adapters) {
        inputs.push_back(adapter.use.file);
    }
    for (const fs::path& file : inputs) {
        for (const fs::path& output : outputs) {
            std::error_code ignored;
            check(!fs::equivalent(output, file, ignored), ErrorKind::bad_argument, output.string(),
                  " is an input and would be overwritten; give another -o");
        }
    }
}

}  // namespace flux2::convert
