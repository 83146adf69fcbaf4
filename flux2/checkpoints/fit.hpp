// Whether the parts of a model fit together.
#pragma once

#include "networks/part.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace flux2 {

// The properties of a part that decide it.
struct PartFit {
    Part part = Part::transformer;
    std::string file;
    int64_t text_width = 0;       // of the features a transformer takes or a text encoder gives
    int64_t latent_channels = 0;  // of a token, for transformer and autoencoders
};

// Why two parts cannot work together, in one sentence; nothing when they can, or when they are two
// of the same part.
std::optional<std::string> misfit(const PartFit& a, const PartFit& b);

}  // namespace flux2
