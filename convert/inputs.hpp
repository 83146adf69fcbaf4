// Paths of the command line -> opened checkpoints and the output path of each.
#pragma once

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"

#include <filesystem>
#include <vector>

namespace flux2::convert {

// Opens every input; a diffusers folder (with model_index.json) and a file with several parts give
// one checkpoint for each part. Throws bad_file.
std::vector<Checkpoint> open_inputs(const std::vector<std::filesystem::path>& inputs);

// One file for one part that does not come in a diffusers folder; else `output` is a folder with
// transformer.gguf, text_encoder.gguf and vae.gguf. Throws bad_argument when it cannot be used so.
// Creates nothing.
std::vector<std::filesystem::path> name_outputs(const std::vector<std::filesystem::path>& inputs,
                                                const std::vector<Checkpoint>& checkpoints,
                                                const std::filesystem::path& output);

// Throws bad_argument when a result would replace a file that is read, also through a link: one
// with tensors, or a file next to it or next to `tokenizer` (a file, a folder or empty), or an
// adapter.
void check_outputs(const std::vector<std::filesystem::path>& outputs,
                   const std::vector<Checkpoint>& checkpoints,
                   const std::filesystem::path& tokenizer,
                   const std::vector<UsedAdapter>& adapters = {});

}  // namespace flux2::convert
