// The opened files of a model and the facts in them that hold for every picture.
#pragma once

#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "checkpoints/variant.hpp"

#include <optional>
#include <string>

namespace flux2 {

struct Model {
    Checkpoint transformer;
    std::optional<Checkpoint> vae;           // none when the tiny autoencoder does all
    std::optional<Checkpoint> tiny;          // draws previews; none: a linear map does
    bool tiny_decodes = false;               // and the picture itself
    std::optional<Checkpoint> text_encoder;  // none when features come from files only
    TransformerSizes sizes;
    Variant variant = Variant::klein;
    SamplingDefaults defaults = {};
    TextConfig text;
    FileInfo info;  // of the transformer
};

// Opens and checks every file that is named, then looks for parts that are missing. `variant`
// overrides the file's own, unless it is empty. Throws bad_file or bad_argument.
Model open_model(const ModelFiles& files, const std::string& variant);

}  // namespace flux2
