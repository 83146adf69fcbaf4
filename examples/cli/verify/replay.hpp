// Recorded runs with a model's own files: prompt, references and noise in, every stage compared.
#pragma once

#include "common/options.hpp"
#include "verify/recording.hpp"

#include <cstddef>
#include <filesystem>
#include <vector>

namespace flux2::cli {

// Replays each recording and compares whatever it holds of: token_ids (exactly), prompt_embeds,
// negative_prompt_embeds (of the empty prompt), reference_latents_i, sigmas, latents_i (after step
// i), image; of repainted pictures also source_latents, mask_cells, start. Without an image the PNG
// of the recording's name beside it serves. What is not recorded is noted, what is recorded but not
// computed fails. Only the noise is taken from the recording; every other stage starts from our own
// results.
//
// The settings prompt, steps, guidance, width, height, references (files beside the recording),
// init, mask, strength, lora and model stand in its metadata. lora lists files, relative to the
// recording, with their strengths: [["a.safetensors", 0.8]]; `adapters` are used instead when there
// are any. In a folder with several transformers a model whose name has the word base, kv or dev
// asks for that variant, any other name for the distilled one.
//
// With max_steps, a run ends after so many steps, without its picture; what is recorded of later
// ones is not compared. 0: no limit.
//
// Throws bad_file for a broken recording or a model of other widths, bad_argument for two
// recordings of one name.
void replay(const std::vector<std::filesystem::path>& recordings, const ModelOptions& model,
            const std::vector<Adapter>& adapters, size_t max_steps, Report& report);

}  // namespace flux2::cli
