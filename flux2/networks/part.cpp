#include "networks/part.hpp"

#include <cstddef>

namespace flux2 {
namespace {

// In the order of Part.
constexpr std::array<PartFacts, kAllParts.size()> kFacts = {{
    {"transformer", "transformer.gguf", Setting::transformer, /*has_blocks=*/true,
     /*makes_latents=*/false},
    {"text encoder", "text_encoder.gguf", Setting::text_encoder, /*has_blocks=*/true,
     /*makes_latents=*/false},
    {"autoencoder", "vae.gguf", Setting::vae, /*has_blocks=*/false, /*makes_latents=*/true},
    {"tiny autoencoder", "taesd.gguf", Setting::taesd, /*has_blocks=*/false,
     /*makes_latents=*/true},
}};

}  // namespace

const PartFacts& facts_of(Part part) {
    return kFacts[static_cast<size_t>(part)];
}

}  // namespace flux2
