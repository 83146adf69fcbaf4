#include "common/prompt_tags.hpp"

#include "base/check.hpp"
#include "common/lora_tags.hpp"
#include "common/reference_library.hpp"

#include <optional>
#include <utility>

namespace flux2::cli {

std::vector<AdaptedPrompt> resolve_tags(const std::vector<std::string>& prompts,
                                        const GenerateOptions& o) {
    std::optional<LoraFolder> folder;  // listed when the first tag is met
    std::optional<ReferenceLibrary> library;
    if (!o.reference_library.empty()) {
        library.emplace(o.reference_library);
    }
    std::vector<AdaptedPrompt> resolved;
    for (const std::string& prompt : prompts) {
        TaggedPrompt split = split_tags(prompt);
        AdaptedPrompt& adapted = resolved.emplace_back();
        adapted.text = std::move(split.text);
        for (const LoraTag& tag : split.tags) {
            check(!o.lora_folder.empty(), ErrorKind::bad_argument, "the prompt names the LoRA '",
                  tag.name, "'; add --lora-dir FOLDER with its file, or use --lora FILE");
            if (!folder) {
                folder.emplace(o.lora_folder);
            }
            Adapter& adapter = adapted.adapters.emplace_back();
            adapter.file = folder->find(tag.name);
            adapter.strength = tag.strength;
            apply_filters(o.adapter_filters, adapter);
        }
        if (library) {
            ExpandedPrompt expanded = expand_elements(adapted.text, *library);
            adapted.text = std::move(expanded.text);
            adapted.references = std::move(expanded.references);
        }
    }
    return resolved;
}

void apply_prompt(const AdaptedPrompt& prompt, const GenerateOptions& o, Request& request) {
    request.adapters = o.request.adapters;
    request.adapters.insert(request.adapters.end(), prompt.adapters.begin(), prompt.adapters.end());
    request.references.resize(o.references.size());
    request.reference_roles = o.request.reference_roles;
    if (!prompt.references.empty()) {
        request.reference_roles.resize(o.references.size());
    }
    for (const ReferenceFile& reference : prompt.references) {
        request.references.push_back(load_image(reference.file, o.alpha));
        request.reference_roles.push_back(reference.role);
    }
}

}  // namespace flux2::cli
