#include "pipeline/request.hpp"

#include "base/check.hpp"
#include "networks/family.hpp"
#include "pipeline/guidance.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/prompt.hpp"
#include "pipeline/reference_roles.hpp"
#include "pipeline/reference_sizes.hpp"
#include "pipeline/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace flux2 {
namespace {

constexpr int64_t kMatchedPixels = 1024 * 1024;
constexpr int kMaxSteps = 1000;
constexpr float kDefaultStrength = 0.75f;
constexpr int kSaneSide = 65536;
// Far beyond what any model reads; both prompts are stored in the picture.
constexpr size_t kMaxPromptBytes = 1'000'000;

int checked_side(const char* name, int side, bool fit) {
    check(side >= kMinSide && side <= kSaneSide, ErrorKind::bad_argument, name, " of ", side,
          " pixels is out of range; use ", kMinSide, " to ", kMaxSide);
    if (side % kImageGrid == 0) {
        return side;
    }
    const NearestSides nearest = nearest_sides(side);
    check(fit, ErrorKind::bad_argument, name, " of ", side, " pixels is no multiple of ",
          kImageGrid, "; use ", nearest.below, " or ", nearest.above, ", or ", Setting::fit_size,
          " to round");
    return side - nearest.below < nearest.above - side ? nearest.below : nearest.above;
}

// The size of a picture, at most a megapixel, in multiples of 16.
ImageSize matched_size(const Image& image) {
    const double pixels = static_cast<double>(image.width) * image.height;
    const double scale = std::min(1.0, std::sqrt(static_cast<double>(kMatchedPixels) / pixels));
    const auto side = [&](int s) {
        const int scaled = static_cast<int>(s * scale);
        return std::max(kMinSide, scaled / kImageGrid * kImageGrid);
    };
    return {side(image.width), side(image.height)};
}

// The same for one whose size is asked for: its own if a picture can have that.
ImageSize asked_size(const Image& image) {
    const bool is_exact = is_image_side(image.width) && is_image_side(image.height);
    return is_exact ? ImageSize{image.width, image.height} : matched_size(image);
}

ImageSize size_of_noise(const Request& request, const HostTensor& noise) {
    check(std::max(noise.ne[0], noise.ne[1]) <= kSaneSide / kImageGrid, ErrorKind::bad_file,
          request.noise_file.string(), ": its noise of ", noise.ne[0], "x", noise.ne[1],
          " values is for no picture that can be made");
    return {static_cast<int>(noise.ne[0]) * kImageGrid, static_cast<int>(noise.ne[1]) * kImageGrid};
}

ImageSize default_size(const Request& request, const Model& model, const Job& job) {
    if (job.noise) {
        return size_of_noise(request, *job.noise);
    }
    if (request.match_reference) {
        return asked_size(request.references[*request.match_reference]);
    }
    if (!request.references.empty()) {
        return matched_size(request.references.front());
    }
    if (request.init) {
        return matched_size(request.init->image);
    }
    return {model.defaults.width, model.defaults.height};
}

std::optional<int> checked_side(const char* name, const std::optional<int>& side, bool fit) {
    return side ? std::optional(checked_side(name, *side, fit)) : std::nullopt;
}

void resolve_size(const Request& request, const Model& model, Job& job) {
    const auto width = checked_side("a width", request.width, request.fit_size);
    const auto height = checked_side("a height", request.height, request.fit_size);
    if (request.inpaint || request.outpaint) {
        const ImageSize model_size = {model.defaults.width, model.defaults.height};
        job.edit = std::make_shared<Edit>(request, model_size, width, height);
        job.width = job.edit->working_size().width;
        job.height = job.edit->working_size().height;
        return;
    }
    const size_t n = request.references.size();
    check(!request.match_reference || *request.match_reference < n, ErrorKind::bad_argument,
          "the size of reference ", request.match_reference.value_or(0) + 1,
          " is asked for, but there are ", n, "; add one, or choose another");
    check(!request.match_reference || !(request.width || request.height), ErrorKind::bad_argument,
          "both a size and the size of a reference are asked for; leave out one of them");
    if (!width || !height) {
        const ImageSize size = default_size(request, model, job);
        job.width = size.width;
        job.height = size.height;
    }
    job.width = width.value_or(job.width);
    job.height = height.value_or(job.height);
}

std::vector<float> checked_sigmas(const Request& request) {
    std::vector<float> sigmas = request.sigmas;
    if (sigmas.back() != 0.0f) {
        sigmas.push_back(0.0f);
    }
    check(!request.steps || static_cast<size_t>(*request.steps) + 1 == sigmas.size(),
          ErrorKind::bad_argument, "the noise levels given make ", sigmas.size() - 1,
          " steps, but ", request.steps.value_or(0), " are asked for; leave out one of them");
    for (size_t i = 0; i < sigmas.size(); ++i) {
        const bool falls = i == 0 || sigmas[i] < sigmas[i - 1];
        check(sigmas[i] >= 0.0f && sigmas[i] <= 1.0f && falls, ErrorKind::bad_argument,
              "noise level ", sigmas[i], " (number ", i + 1,
              ") is out of order; levels fall from at most 1 to 0, such as 1,0.9,0.7,0");
    }
    check(sigmas.size() >= 2 && sigmas.size() <= kMaxSteps + 1, ErrorKind::bad_argument,
          "noise levels need at least one and at most ", kMaxSteps,
          " above 0, such as 1,0.9,0.7,0");
    return sigmas;
}

void resolve_steps(const Request& request, const Model& model, Job& job) {
    job.steps = request.steps.value_or(model.defaults.steps);
    check(job.steps >= 1 && job.steps <= kMaxSteps, ErrorKind::bad_argument, job.steps,
          " steps are out of range; use 1 to ", kMaxSteps, " (", model.info.name, " wants ",
          model.defaults.steps, ")");
    job.sigmas = request.sigmas.empty() ? schedule(job.latent_w() * job.latent_h(), job.steps)
                                        : checked_sigmas(request);
    if (request.init) {
        const float strength = request.init->strength.value_or(job.edit ? 1.0f : kDefaultStrength);
        check(strength > 0.0f && strength <= 1.0f, ErrorKind::bad_argument, "a strength of ",
              strength,
              " is out of range; use more than 0 (almost keeps the picture) up to 1 (ignores it)");
        const auto n = static_cast<float>(job.sigmas.size() - 1);
        // However small the strength, one step is left.
        const auto skipped =
            static_cast<std::ptrdiff_t>(std::min(n - std::min(n * strength, n), n - 1));
        job.sigmas.erase(job.sigmas.begin(), job.sigmas.begin() + skipped);
    }
    job.steps = static_cast<int>(job.sigmas.size()) - 1;
}

// Files are read once and checked here, before anything is loaded or computed for them.
void check_noise(const Request& request, const Model& model, const Job& job) {
    const HostTensor& noise = *job.noise;
    check(noise.ne[0] == job.latent_w() && noise.ne[1] == job.latent_h() &&
              noise.ne[2] == model.sizes.channels,
          ErrorKind::bad_file, request.noise_file.string(), ": its noise is for ",
          noise.ne[0] * kImageGrid, "x", noise.ne[1] * kImageGrid, " pixels and ", noise.ne[2],
          " channels, the picture has ", job.width, "x", job.height, " and ", model.sizes.channels);
}

void resolve_features(const Request& request, const Model& model, Job& job) {
    const std::string file = request.embeds_file.string();
    const auto read = [&](const char* name) {
        HostTensor features = read_features(request.embeds_file, name);
        check(features.ne[0] == model.sizes.text_width, ErrorKind::bad_file, file, ": its ", name,
              " are ", features.ne[0], " wide, ", model.info.name, " takes ",
              model.sizes.text_width);
        return share(std::move(features));
    };
    job.features = read("prompt_embeds");
    const int64_t n = job.features->ne[1];
    check(n <= model.text.context_length, ErrorKind::bad_file, file, ": its prompt_embeds have ", n,
          " tokens; the model takes at most ", model.text.context_length);
    if (job.two_passes) {
        job.negative_features = read("negative_prompt_embeds");
        const int64_t n_negative = job.negative_features->ne[1];
        check(n_negative == n, ErrorKind::bad_file, file, ": its negative_prompt_embeds have ",
              n_negative, " tokens, its prompt_embeds ", n, "; both must have as many");
    }
    job.text_length = n;
}

void resolve_images(const Request& request, const Model& model, Job& job) {
    const bool can_encode = model.vae || read_tiny_autoencoder_sizes(*model.tiny).has_encoder;
    check(can_encode || (request.references.empty() && !request.init), ErrorKind::bad_file,
          "references and pictures to start from must be encoded, and ",
          can_encode ? "" : model.tiny->file(),
          " holds the decoder alone; add the autoencoder with ", Setting::vae,
          " FILE, or give a TAEF2 file with both halves");
    if (job.edit) {
        job.references.push_back(job.edit->working_size());
    }
    for (const Image& reference : request.references) {
        job.references.push_back(fitted_size(reference, request));
    }
    if (request.init) {
        check_image(request.init->image);
        job.has_init = true;
    }
}

}  // namespace

int Job::n_passes() const {
    const bool adds = two_passes && !guides_in_one_pass();
    return steps + (adds ? static_cast<int>(guided_steps.size()) : 0);
}

bool Job::guides_in_one_pass() const {
    constexpr int64_t kShort = 4096;  // tokens of all sequences together
    const int64_t n_tokens = text_length + latent_w() * latent_h() + n_reference_tokens();
    return two_passes && 2 * n_pictures * n_tokens <= kShort;
}

int64_t Job::n_reference_tokens() const {
    int64_t n = 0;
    for (const ImageSize& reference : references) {
        n += static_cast<int64_t>(reference.width / kImageGrid) * (reference.height / kImageGrid);
    }
    return n;
}

NearestSides nearest_sides(int side) {
    const int below = std::max(kMinSide, side / kImageGrid * kImageGrid);
    return {below, below + kImageGrid};
}

void check_prompt(const std::string& prompt) {
    check(prompt.size() <= kMaxPromptBytes, ErrorKind::bad_argument, "a prompt of ", prompt.size(),
          " bytes is too long; use at most ", kMaxPromptBytes);
}

FittedImages fit_images(const Request& request, const Job& job) {
    FittedImages images;
    if (job.edit) {
        images.references.push_back(job.edit->model_picture(request.init->image));
    }
    for (const Image& reference : request.references) {
        images.references.push_back(reference.profile.empty()
                                        ? fit_reference(reference, request)
                                        : fit_reference(to_srgb(reference), request));
    }
    if (request.init && !job.edit) {
        const Image& init = request.init->image;
        images.init = init.profile.empty() ? cover(init, job.width, job.height)
                                           : cover(to_srgb(init), job.width, job.height);
    }
    return images;
}

Job resolve(const Request& request, const Model& model) {
    Job job;
    job.prompt = with_reference_sentences(request.prompt, request);
    check_prompt(job.prompt);
    check_prompt(request.negative_prompt);
    job.negative_prompt = request.negative_prompt;
    if (!request.noise_file.empty()) {
        job.noise = share(read_noise(request.noise_file));
    }
    resolve_size(request, model, job);
    resolve_steps(request, model, job);
    resolve_guidance(request, model, job);
    resolve_images(request, model, job);
    job.generator = parse_generator(request.generator);
    // The reference's random seeds are below 2^31 too.
    job.seed = request.seed.value_or(std::random_device{}() & 0x7fffffffu);
    job.text_length = request.text_length.value_or(static_cast<int>(model.text.text_length));
    check(job.text_length >= 1 && job.text_length <= model.text.context_length,
          ErrorKind::bad_argument, "a text length of ", job.text_length,
          " tokens is out of range; use 1 to ", model.text.context_length, " (the model wants ",
          model.text.text_length, ")");
    job.preview = request.preview;
    job.keep_colours = request.keep_colours;
    check(!job.keep_colours || request.init || !request.references.empty(), ErrorKind::bad_argument,
          "there is no picture whose colours could be kept; add one to start from or a reference");
    if (job.noise) {
        check_noise(request, model, job);
    }
    if (!request.embeds_file.empty()) {
        resolve_features(request, model, job);
    }
    check(model.text_encoder.has_value() || job.features, ErrorKind::bad_file,
          "no text encoder: add ", Setting::text_encoder, " FILE (", families_in_words(), ")");
    return job;
}

}  // namespace flux2
