// The parts of a model: four networks, each in a file of its own or several in one.
#pragma once

#include <flux2/setting.hpp>

#include <array>

namespace flux2 {

// This order is used everywhere; the first part in a file with several is its main one.
enum class Part { transformer, text_encoder, vae, tiny_autoencoder };

inline constexpr std::array kAllParts = {Part::transformer, Part::text_encoder, Part::vae,
                                         Part::tiny_autoencoder};

struct PartFacts {
    const char* name;       // for messages
    const char* file_name;  // of a converted file in a folder of its own
    Setting setting;        // that names its file
    bool has_blocks;        // many equal blocks, whose weights can be streamed to a device
    bool makes_latents;     // encodes pictures to latents and decodes them
};

const PartFacts& facts_of(Part part);

// "text encoder"
inline const char* to_string(Part part) {
    return facts_of(part).name;
}

}  // namespace flux2
