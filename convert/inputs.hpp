// What the user named on the command line -> the checkpoints meant by it and where each result
// goes.
#pragma once

#include "store/checkpoint.hpp"

#include <filesystem>
#include <vector>

namespace flux2::convert {

// Opens every input; a diffusers folder (with model_index.json) and a file with several parts give
// each of them.
// Throws bad_file.
std::vector<Checkpoint> open_inputs(const std::vector<std::filesystem::path>& inputs);

// One file for one part that does not come in a diffusers folder; else `output` is a folder with
// transformer.gguf, text_encoder.gguf and vae.gguf. Throws bad_argument when it cannot be that, or
// when a result would replace its own source. Creates nothing.
std::vector<std::filesystem::path> name_outputs(const std::vector<std::filesystem::path>& inputs,
                                                const std::vector<Checkpoint>& checkpoints,
                                                const std::filesystem::path& output);

}  // namespace flux2::convert
