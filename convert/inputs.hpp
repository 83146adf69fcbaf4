// What the user named on the command line -> the checkpoints meant by it and where each result
// goes.
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <filesystem>
#include <vector>

namespace flux2::convert {

// Opens every input; a diffusers folder (with model_index.json) and a file with several parts give
// each of them.
// Throws bad_file.
std::vector<Checkpoint> open_inputs(const std::vector<std::filesystem::path>& inputs);

// One file for one part that does not come in a diffusers folder; else `output` is a folder with
// transformer.gguf, text_encoder.gguf and vae.gguf. Throws bad_argument when it cannot be that.
// Creates nothing.
std::vector<std::filesystem::path> name_outputs(const std::vector<std::filesystem::path>& inputs,
                                                const std::vector<Checkpoint>& checkpoints,
                                                const std::filesystem::path& output);

// Throws bad_argument when a result would replace, under whatever name, a file that is read: one
// with tensors, or one of those beside it or beside `tokenizer` (a file, a folder or empty).
void check_outputs(const std::vector<std::filesystem::path>& outputs,
                   const std::vector<Checkpoint>& checkpoints,
                   const std::filesystem::path& tokenizer);

}  // namespace flux2::convert
