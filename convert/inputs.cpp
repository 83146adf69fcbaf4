#include "inputs.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace flux2::convert {
namespace fs = std::filesystem;
namespace {

bool is_diffusers_folder(const fs::path& path) {
    return fs::exists(path / "model_index.json");
}

const char* output_name(Component component) {
    switch (component) {
        case Component::transformer:
            return "transformer.gguf";
        case Component::text_encoder:
            return "text_encoder.gguf";
        case Component::vae:
            return "vae.gguf";
        case Component::tiny_autoencoder:
            return "taesd.gguf";
    }
    fail(ErrorKind::internal, "unknown component");
}

void check_not_a_source(const fs::path& output, const std::vector<Checkpoint>& checkpoints) {
    for (const Checkpoint& checkpoint : checkpoints) {
        for (const MappedFile& file : checkpoint.source().files()) {
            std::error_code ignored;
            check(!fs::equivalent(output, file.path(), ignored), ErrorKind::bad_argument,
                  output.string(), " is an input and would be overwritten; give another -o");
        }
    }
}

}  // namespace

std::vector<Checkpoint> open_inputs(const std::vector<fs::path>& inputs) {
    constexpr std::array<std::string_view, 3> kParts = {"transformer", "text_encoder", "vae"};
    std::vector<Checkpoint> checkpoints;
    for (const fs::path& input : inputs) {
        if (!is_diffusers_folder(input)) {
            for (Checkpoint& checkpoint : Checkpoint::open_all(input)) {
                checkpoints.push_back(std::move(checkpoint));
            }
            continue;
        }
        for (const std::string_view part : kParts) {
            check(fs::is_directory(input / part), ErrorKind::bad_file, input.string(),
                  ": is a diffusers folder without ", part, "/; download the rest of it");
            checkpoints.push_back(Checkpoint::open(input / part));
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
        check(!fs::is_directory(output), ErrorKind::bad_argument, output.string(),
              " is a folder; give the name of the file to write, such as ",
              (output / output_name(checkpoints.front().component())).string());
        outputs.push_back(output);
    } else {
        check(!fs::exists(output) || fs::is_directory(output), ErrorKind::bad_argument,
              output.string(), " is a file; several parts need a folder to go to");
        for (const Checkpoint& checkpoint : checkpoints) {
            outputs.push_back(output / output_name(checkpoint.component()));
        }
    }
    for (const fs::path& path : outputs) {
        check_not_a_source(path, checkpoints);
    }
    return outputs;
}

}  // namespace flux2::convert
