// The opened files of a model, and what is read from them once for all pictures.
#pragma once

#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "checkpoints/variant.hpp"
#include "pipeline/model_tokenizer.hpp"

#include <memory>
#include <optional>
#include <string>

namespace flux2 {

struct Model {
    Checkpoint transformer;
    std::optional<Checkpoint> vae;           // none when the tiny autoencoder replaces it
    std::optional<Checkpoint> tiny;          // decodes previews; none: a linear map is used
    bool tiny_decodes = false;               // whether it also decodes the picture
    std::optional<Checkpoint> text_encoder;  // none when features come from files only
    std::unique_ptr<ModelTokenizer> tokenizer = std::make_unique<ModelTokenizer>();
    TransformerSizes sizes;
    Variant variant = Variant::klein;
    SamplingDefaults defaults = {};
    TextConfig text;
    FileInfo info;  // of the transformer
};

// Opens and checks every given file, then looks for missing parts in the transformer's file.
// `variant` overrides the file's own, unless it is empty. Throws bad_file or bad_argument.
Model open_model(const ModelFiles& files, const std::string& variant);

}  // namespace flux2
