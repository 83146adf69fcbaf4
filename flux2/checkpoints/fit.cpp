#include "checkpoints/fit.hpp"

#include "base/check.hpp"
#include "networks/family.hpp"

namespace flux2 {
namespace {

std::string text_advice(int64_t text_width) {
    const Family* family = find_family(text_width);
    return family == nullptr
               ? families_in_words()
               : concat("use ", family->text_encoder, ", which belongs to ", family->transformer);
}

}  // namespace

std::optional<std::string> misfit(const PartFit& a, const PartFit& b) {
    if (b.part == Part::transformer && a.part != Part::transformer) {
        return misfit(b, a);
    }
    if (a.part != Part::transformer) {
        return std::nullopt;
    }
    if (b.part == Part::text_encoder && a.text_width != b.text_width) {
        return concat(a.file, " takes text features ", a.text_width, " wide, ", b.file, " gives ",
                      b.text_width, "; ", text_advice(a.text_width));
    }
    if (facts_of(b.part).makes_latents && a.latent_channels != b.latent_channels) {
        return concat(a.file, " works on ", a.latent_channels, " latent channels, ", b.file,
                      " makes ", b.latent_channels, "; use the FLUX.2 ", to_string(b.part));
    }
    return std::nullopt;
}

}  // namespace flux2
