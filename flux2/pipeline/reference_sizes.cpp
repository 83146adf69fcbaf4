#include "pipeline/reference_sizes.hpp"

#include "base/check.hpp"

#include <cmath>
#include <limits>

namespace flux2 {
namespace {

constexpr double kNoticeableCost = 2;

struct ReferenceLimits {
    int64_t pixels = 0;
    int side = kMaxImageSide;
};

ReferenceLimits limits_of(const Request& request) {
    if (!request.reference_pixels) {
        // A picture that is edited is one of them.
        const size_t n_edited = request.inpaint || request.outpaint ? 1 : 0;
        return {.pixels = max_reference_pixels(request.references.size() + n_edited)};
    }
    const int64_t pixels = *request.reference_pixels;
    check(pixels >= 0, ErrorKind::bad_argument, "reference pictures are limited to ", pixels,
          " pixels; use a number above 0, or 0 for no limit");
    return {.pixels = pixels > 0 ? pixels : std::numeric_limits<int64_t>::max(), .side = kMaxSide};
}

}  // namespace

Image fit_reference(const Image& reference, const Request& request) {
    const ReferenceLimits limits = limits_of(request);
    return fit_reference(reference, limits.pixels, limits.side);
}

ImageSize fitted_size(const Image& reference, const Request& request) {
    const ReferenceLimits limits = limits_of(request);
    return fitted_size(reference, limits.pixels, limits.side);
}

// Both kinds of blocks multiply a token with 4 hidden^2 + 3 mlp hidden weights (qkv, projection,
// gated MLP), and each pair of a query and a key costs 2 hidden multiplications. Divided by
// 2 hidden, n tokens that all see each other cost n (2 hidden + 1.5 mlp) + n^2.
double reference_cost(const TransformerSizes& sizes, const TokenCounts& tokens,
                      bool kv_references) {
    const double per_token =
        2.0 * static_cast<double>(sizes.hidden) + 1.5 * static_cast<double>(sizes.mlp);
    const auto alone = static_cast<double>(tokens.txt + tokens.img);
    const auto ref = static_cast<double>(tokens.ref);
    const double all = alone + ref;
    // In the KV variant's first step references see only each other.
    const double pairs = kv_references ? alone * all + ref * ref : all * all;
    return (all * per_token + pairs) / (alone * per_token + alone * alone);
}

std::string reference_cost_line(const Job& job, const Model& model) {
    const TokenCounts tokens = {.txt = job.text_length,
                                .img = job.latent_w() * job.latent_h(),
                                .ref = job.n_reference_tokens()};
    const bool kv = model.variant == Variant::kv;
    const double cost = reference_cost(model.sizes, tokens, kv);
    if (cost < kNoticeableCost) {
        return "";
    }
    const size_t n = job.references.size();
    return concat(n, n == 1 ? " reference adds " : " references add ", tokens.ref,
                  " tokens to the picture's ", tokens.img, ": ", kv ? "the first" : "a",
                  " step takes about ", std::llround(cost), " times as long",
                  kv ? ", later ones little longer" : "", "; ", Setting::reference_pixels,
                  n == 1 ? " makes it smaller" : " makes them smaller");
}

}  // namespace flux2
