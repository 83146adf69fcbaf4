// What prompts name themselves: LoRAs as <lora:name:0.8> and elements of a reference library as
// @name.
#pragma once

#include <flux2/flux2.hpp>
#include "common/options.hpp"
#include "common/reference_options.hpp"

#include <string>
#include <vector>

namespace flux2::cli {

// A prompt as the model gets it, and what its tags add to the request.
struct AdaptedPrompt {
    std::string text;
    std::vector<Adapter> adapters;
    std::vector<ReferenceFile> references;
};

// Looks the tags up in the options' folders. Throws bad_argument for a LoRA when no folder is
// given; without a reference library an @ stays as it is.
std::vector<AdaptedPrompt> resolve_tags(const std::vector<std::string>& prompts,
                                        const GenerateOptions& options);

// Sets the request's adapters and references to those of the options and the prompt's own after
// them. The request is one for these options, perhaps with what another prompt added. Reads
// pictures; throws bad_file.
void apply_prompt(const AdaptedPrompt& prompt, const GenerateOptions& options, Request& request);

}  // namespace flux2::cli
