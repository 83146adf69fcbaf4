// Configuration files and options -> GGUF keys of each part. The keys are listed in
// docs/formats.md.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/variant.hpp"
#include "type_choice.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2::convert {

// Where the SHA-256 of the source goes; filled in when the file is finished.
inline constexpr const char* kSourceHashKey = "flux2.source_sha256";

// How types were chosen by measured errors, and the mean error; absent with --type.
inline constexpr const char* kQuantizationMethodKey = "flux2.quantization.method";
inline constexpr const char* kQuantizationErrorKey = "flux2.quantization.error";

// The LoRAs that were merged, in order: "NAME.safetensors:STRENGTH"; absent when there are none.
inline constexpr const char* kAdaptersKey = "flux2.adapters";

struct MetadataResult {
    Metadata metadata;
    std::string name;  // for messages
    std::vector<std::string> warnings;
};

// Defaults for running a transformer; unset: the file's or the variant's.
struct DefaultOptions {
    struct Size {
        int width, height;
    };
    std::optional<int> steps;
    std::optional<float> guidance;
    std::optional<Size> size;
};

MetadataResult transformer_metadata(const Checkpoint& checkpoint, const TransformerSizes& sizes,
                                    Variant variant, const DefaultOptions& options,
                                    const FileType& type);

// Of either autoencoder.
MetadataResult autoencoder_metadata(const Checkpoint& checkpoint, const FileType& type);

struct TextEncoderOptions {
    std::vector<int64_t> layers;         // empty: the file's, else its family's
    std::optional<int64_t> text_length;  // unset: the file's, else 512
    std::filesystem::path tokenizer;     // empty: the one beside the checkpoint
    bool trim = false;
};

// The layers whose output FLUX.2 uses, counted from 1, and the text length in tokens.
struct TextUse {
    std::vector<int64_t> layers;
    int64_t text_length = 0;
};
// Throws bad_argument or bad_file for layers the model does not have.
TextUse decide_text_use(const Checkpoint& checkpoint, const TextEncoderSizes& sizes,
                        const TextEncoderOptions& options);

// Layers to keep: all, or up to the last one used.
int64_t layers_kept(const TextEncoderSizes& sizes, const TextUse& use, bool trim);

MetadataResult text_encoder_metadata(const Checkpoint& checkpoint, const TextEncoderSizes& sizes,
                                     const TextUse& use, const TextEncoderOptions& options,
                                     const FileType& type);

}  // namespace flux2::convert
