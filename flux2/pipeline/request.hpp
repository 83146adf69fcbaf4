// Validates a request and fills in all defaults, before any work.
#pragma once

#include <flux2/flux2.hpp>
#include "base/host_tensor.hpp"
#include "base/image_limits.hpp"
#include "base/random.hpp"
#include "image/image.hpp"
#include "pipeline/edit.hpp"
#include "pipeline/model.hpp"
#include "pipeline/request_adapters.hpp"
#include "pipeline/sampler.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// A request after validation: what is to be generated.
struct Job {
    std::string prompt, negative_prompt;  // the prompt with sentences about references
    int width = 0, height = 0;
    int steps = 0;
    float guidance = 1.0f;     // embedded by models with a guidance input
    float cfg_scale = 1.0f;    // of guidance by a second pass with the negative prompt; 1: none
    bool two_passes = false;   // cfg_scale > 1
    StepRange guided_steps{};  // those that have two passes
    uint64_t seed = 0;         // of the first picture; those of the others follow
    int n_pictures = 1;        // in one pass
    Generator generator = Generator::cuda;
    std::vector<float> sigmas;  // one more than steps, from high to 0
    int64_t text_length = 0;
    std::vector<ImageSize> references;  // as the model takes them; with an edit its picture first
    bool has_init = false;              // starts from a picture
    std::shared_ptr<const Edit> edit;   // repaints a part of it; else null
    bool keep_colours = false;
    bool preview = false;
    // From files, when the request names them; else null.
    SharedTensor noise;                        // [latent_w, latent_h, channels]
    SharedTensor features, negative_features;  // of the prompts
    AdapterSets adapters;                      // resolved by an AdapterStore

    int n_passes() const;  // of the transformer, in all steps
    // Whether both passes of a guided step are computed as one, which is faster while sequences are
    // short.
    bool guides_in_one_pass() const;
    int64_t latent_w() const { return width / kImageGrid; }
    int64_t latent_h() const { return height / kImageGrid; }
    int64_t n_reference_tokens() const;
};

// Throws bad_argument with a suggestion. Logs a warning for settings that have no effect on this
// model. Does not touch pixels, so that limits can be checked before fit_images works on them.
Job resolve(const Request& request, const Model& model);

// Throws bad_argument for a prompt that is too long to be stored with its picture.
void check_prompt(const std::string& prompt);

// The images of a request, scaled and cropped to the sizes in its job.
struct FittedImages {
    std::vector<Image> references;
    std::optional<Image>
        init;  // of the picture's size; none with an edit, whose first reference it is
};
FittedImages fit_images(const Request& request, const Job& job);

// The two multiples of 16 around a side, the smaller at least 64, to suggest in an error.
struct NearestSides {
    int below, above;
};
NearestSides nearest_sides(int side);

}  // namespace flux2
