// One picture from request to pixels.
#include "base/check.hpp"
#include "base/log.hpp"
#include "base/ram.hpp"
#include "base/system.hpp"
#include "image/colour_match.hpp"
#include "image/image.hpp"
#include "pipeline/denoise.hpp"
#include "pipeline/encoded_images.hpp"
#include "pipeline/features.hpp"
#include "pipeline/job_memory.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/preview.hpp"
#include "pipeline/progress.hpp"
#include "pipeline/prompt.hpp"
#include "pipeline/reference_roles.hpp"
#include "pipeline/reference_sizes.hpp"
#include "pipeline/request.hpp"
#include "pipeline/sampler.hpp"
#include "pipeline/size_warning.hpp"
#include "pipeline/tensor_cache.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <utility>

namespace flux2 {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds since construction, without the time for loading parts.
class WorkTimer {
  public:
    explicit WorkTimer(const LoadedModel& loaded_model)
        : loaded_model_(loaded_model), load_seconds_before_(loaded_model.load_seconds()) {}

    double seconds() const {
        return std::chrono::duration<double>(Clock::now() - start_).count() -
               (loaded_model_.load_seconds() - load_seconds_before_);
    }

  private:
    const LoadedModel& loaded_model_;
    double load_seconds_before_;
    Clock::time_point start_ = Clock::now();
};

// Frees the networks unless they are kept: at the end of a request, however that ends.
class FreeUnlessKept {
  public:
    explicit FreeUnlessKept(LoadedModel& loaded_model) : loaded_model_(loaded_model) {}
    ~FreeUnlessKept() {
        if (!loaded_model_.keeps_loaded()) {
            loaded_model_.free_all();
        }
        return_unused_memory();  // the heaps of threads keep freed memory
    }
    FreeUnlessKept(const FreeUnlessKept&) = delete;
    FreeUnlessKept& operator=(const FreeUnlessKept&) = delete;

  private:
    LoadedModel& loaded_model_;
};

// Does the work of a request; where the system gives no more RAM, that is an Error like any other
// lack of memory.
template <typename Work>
auto do_work(const Work& work) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        fail(ErrorKind::out_of_memory,
             "out of memory: the system gives no more RAM; close other programs, or make a smaller "
             "picture");
    }
}

void check_picture_count(const Request& request, int n) {
    check(n >= 1 && n <= Pipeline::kMostPictures, ErrorKind::bad_argument, n,
          " pictures cannot be made at a time; use 1 to ", Pipeline::kMostPictures);
    check(n == 1 || request.noise_file.empty(), ErrorKind::bad_argument,
          "noise from a file makes one picture; ", n, " with the same noise would be equal");
}

void blend_each(const std::vector<KnownRegion>& known, HostTensor& x, float sigma) {
    std::vector<HostTensor> pictures;
    for (size_t i = 0; i < known.size(); ++i) {
        pictures.push_back(picture_of(x, static_cast<int64_t>(i)));
        known[i].blend(pictures.back(), sigma);
    }
    x = join_pictures(pictures);
}

// How many prompts can be held ahead, one at least.
size_t prompts_with_room(uint64_t bytes_of_one) {
    constexpr uint64_t kShareOfFree = 4;  // the rest is for the networks
    const uint64_t free = available_ram_bytes();
    return free == 0
               ? std::numeric_limits<size_t>::max()
               : static_cast<size_t>(std::max<uint64_t>(1, free / kShareOfFree / bytes_of_one));
}

// Both show the same part of a scene only if they have the same shape.
void keep_colours_of(const Image& source, Image& result) {
    const double source_shape = static_cast<double>(source.width) / source.height;
    const double shape = static_cast<double>(result.width) / result.height;
    const bool matched = std::abs(source_shape / shape - 1.0) < 0.02 &&
                         match_colours(result, resize_lanczos(source, result.width, result.height));
    if (!matched) {
        log(LogLevel::warning,
            "the result has another shape than the picture, or little in common with it: its "
            "colours stay as they are");
    }
}

}  // namespace

struct Pipeline::Impl {
    Impl(Model opened, LoadOptions given)
        : options(with_settled_split(std::move(given))),
          model(std::move(opened)),
          cache(options.cache_folder, options.cache_bytes),
          loaded_model(model, options),
          features(model, loaded_model, cache),
          encoded_images(model, loaded_model, cache),
          memory(model, options, cache, loaded_model) {}

    LoadOptions options;
    Model model;
    TensorCache cache;
    LoadedModel loaded_model;
    FeatureStore features;
    EncodedImages encoded_images;
    AdapterStore adapters;
    JobMemory memory;
    std::optional<HostTensor> preview_map;
    std::string told_reference_cost;  // in the last line about it
    std::string told_size;            // likewise
    std::string told_features;        // likewise

    void leave_lost_devices();
    Job resolve_job(const Request& request);
    void tell_reference_cost(const Job& job);
    void tell_size(const Job& job);
    void tell_features(const Request& request);
    void generate_several(const Request& request, Job job, int n, const OnPicture& on_picture,
                          const Reporter& reporter);
    void generate(const Request& request, const Job& job, const OnPicture& on_picture,
                  const Reporter& reporter);
    BlockWatch watch_encoder(const Reporter& reporter);
    size_t encode_ahead(const Request& request, const Job& job,
                        const std::vector<std::string>& prompts, const Reporter& reporter);
    Conditioning condition(const Job& job, const FittedImages& images, Result& result,
                           const Reporter& reporter);
    HostTensor encode_image(const Image& image, Result& result);
    void prepare_preview();
    Image preview(const HostTensor& tokens, int64_t w, int64_t h);
    void free_tiny();
    void note_memory(Result& result) const;
    HostTensor denoise(const Job& job, const Conditioning& conditioning, const HostTensor& start,
                       const Constrain& constrain, const Reporter& reporter);
    Image decode(const Job& job, const HostTensor& tokens, const Reporter& reporter);
};

// A device that was lost, in the last request or since, is left.
void Pipeline::Impl::leave_lost_devices() {
    if (!loaded_model.is_started()) {  // a device failed to start when others were left
        loaded_model.restart();
    }
    std::vector<std::string> lost;
    for (const Backend* backend : loaded_model.devices()) {
        if (backend->device().abilities().is_far) {
            size_t free = 0;
            size_t total = 0;
            // Asks it, and finds out.
            ggml_backend_dev_memory(ggml_backend_buft_get_device(backend->buffer_type()), &free,
                                    &total);
        }
        if (backend->device().is_lost()) {
            lost.push_back(backend->name());
        }
    }
    if (lost.empty()) {
        return;
    }
    options = without_devices(options, lost);
    memory.restart();
    loaded_model.restart();
    log(LogLevel::warning,
        concat(lost.front(), lost.size() > 1 ? " and others were" : " was",
               " lost: the transformer runs on ", loaded_model.device(), " now"));
}

Job Pipeline::Impl::resolve_job(const Request& request) {
    leave_lost_devices();
    Job job = resolve(request, model);
    job.adapters = adapters.resolve(request, model);
    return job;
}

// Once for pictures alike.
void Pipeline::Impl::tell_reference_cost(const Job& job) {
    const std::string line = reference_cost_line(job, model);
    if (!line.empty() && line != told_reference_cost) {
        log(LogLevel::warning, line);
    }
    told_reference_cost = line;
}

void Pipeline::Impl::tell_size(const Job& job) {
    const std::string line = size_warning(job);
    if (!line.empty() && line != told_size) {
        log(LogLevel::warning, line);
    }
    told_size = line;
}

void Pipeline::Impl::tell_features(const Request& request) {
    const std::string line = request.embeds_file.empty() || request.prompt.empty()
                                 ? ""
                                 : concat("the prompt is not used: the text features of ",
                                          request.embeds_file.string(), " take its place");
    if (!line.empty() && line != told_features) {
        log(LogLevel::warning, line);
    }
    told_features = line;
}

// Reports the blocks of the text encoder while it exists.
BlockWatch Pipeline::Impl::watch_encoder(const Reporter& reporter) {
    return {loaded_model.backend(Part::text_encoder), [&reporter](double share) {
                reporter.report({.stage = Stage::encode_prompt, .what = "", .share = share});
            }};
}

HostTensor Pipeline::Impl::encode_image(const Image& image, Result& result) {
    const EncodedImage encoded = encoded_images.get(image);
    ++(encoded.was_cached ? result.references_cached : result.references_encoded);
    return *encoded.latents;
}

// Text features and encoded references.
Conditioning Pipeline::Impl::condition(const Job& job, const FittedImages& images, Result& result,
                                       const Reporter& reporter) {
    Conditioning conditioning;
    const WorkTimer encoding(loaded_model);
    if (job.features) {
        conditioning.txt = job.features;
        conditioning.negative_txt = job.negative_features;
    } else {
        const std::string changed_by = identity_of(job.adapters.text_encoder);
        std::vector<PromptKey> prompts = {{job.prompt, job.text_length, changed_by}};
        if (job.two_passes) {
            prompts.push_back({job.negative_prompt, job.text_length, changed_by});
        }
        const BlockWatch watch = watch_encoder(reporter);
        result.prompt_cached = features.prepare(prompts) == 0;
        note_memory(result);
        conditioning.txt = features.get(prompts.front());
        if (job.two_passes) {
            conditioning.negative_txt = features.get(prompts.back());
        }
    }
    result.timings.encode_prompt = encoding.seconds();

    const WorkTimer encoding_references(loaded_model);
    for (size_t i = 0; i < images.references.size(); ++i) {
        const BlockWatch watch(loaded_model.backend(encoding_part(model)), [&](double share) {
            reporter.report({.stage = Stage::encode_references,
                             .what = "",
                             .share = (static_cast<double>(i) + share) /
                                      static_cast<double>(images.references.size())});
        });
        conditioning.references.push_back(encode_image(images.references[i], result));
    }
    result.timings.encode_references = encoding_references.seconds();
    return conditioning;
}

void Pipeline::Impl::note_memory(Result& result) const {
    const MemoryUse use = loaded_model.memory();
    result.device_peak = std::max(result.device_peak, use.device);
    result.host_peak = std::max(result.host_peak, use.host);
}

void Pipeline::Impl::prepare_preview() {
    if (model.tiny) {
        loaded_model.run(Part::tiny_autoencoder, [&] { loaded_model.tiny(); });
        return;
    }
    if (preview_map) {
        return;
    }
    const std::string key = concat("preview\n", version(), "\n", identity(model.vae->source()));
    if (auto cached = cache.find(key, {model.sizes.channels + 1, kPreviewOutputs, 1, 1})) {
        preview_map = std::move(cached->value);
    } else {
        preview_map = loaded_model.run(Part::vae, [&] { return fit_preview(loaded_model.vae()); });
        cache.store_result_of(model.vae->source(), key, *preview_map);
    }
}

// Decodes denoised tokens to a preview. The transformer may be in use, so it is not freed.
Image Pipeline::Impl::preview(const HostTensor& tokens, int64_t w, int64_t h) {
    if (!model.tiny) {
        return draw_preview(*preview_map, tokens, w, h);
    }
    const auto decode = [&] {
        const BlockWatch silent(loaded_model.backend(Part::tiny_autoencoder), {});
        return from_planes(loaded_model.decode_preview(from_tokens(tokens, w, h)));
    };
    try {
        return decode();
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::out_of_memory ||
            loaded_model.backend(Part::tiny_autoencoder).is_cpu()) {
            throw;
        }
        log(LogLevel::warning,
            concat("not enough memory for previews (", error.what(), "): they run on the CPU"));
    }
    loaded_model.set_placement(Part::tiny_autoencoder, Placement::cpu);
    return decode();
}

// Frees the tiny autoencoder before a stage that needs memory.
void Pipeline::Impl::free_tiny() {
    if (!loaded_model.keeps_loaded()) {
        loaded_model.free(Part::tiny_autoencoder);
    }
}

HostTensor Pipeline::Impl::denoise(const Job& job, const Conditioning& conditioning,
                                   const HostTensor& start, const Constrain& constrain,
                                   const Reporter& reporter) {
    const int64_t w = job.latent_w();
    const int64_t h = job.latent_h();
    Denoiser denoiser(loaded_model.transformer(), conditioning, w, h,
                      {.guidance = job.guidance,
                       .cfg_scale = job.cfg_scale,
                       .guided_steps = job.guided_steps,
                       .one_pass = job.guides_in_one_pass(),
                       .kv_references = model.variant == Variant::kv});
    const double n_passes = job.n_passes();
    double passes_done = 0;
    Step step;
    step.stage = Stage::denoise;
    step.n_steps = job.steps;
    const BlockWatch watch(loaded_model.backend(Part::transformer), [&](double share) {
        // The first step of KV models may take more passes than those counted.
        step.share = std::min(1.0, (passes_done + share) / n_passes);
        passes_done += share >= 1.0 ? 1 : 0;
        reporter.report(step);
    });
    HostTensor tokens = sample(
        start, job.sigmas,
        [&](const HostTensor& x, float sigma, size_t i) { return denoiser.velocity(x, sigma, i); },
        [&](const HostTensor& x, size_t i, const HostTensor& velocity) {
            step.step = static_cast<int>(i) + 1;
            if (!job.preview) {
                reporter.report(step);
                return;
            }
            // The predicted result: the remaining step at this velocity.
            HostTensor clean = x;
            for (size_t j = 0; j < clean.data.size(); ++j) {
                clean.data[j] -= job.sigmas[i + 1] * velocity.data[j];
            }
            std::vector<Image> pictures;
            for (int64_t picture = 0; picture < clean.ne[2]; ++picture) {
                pictures.push_back(preview(picture_of(clean, picture), w, h));
            }
            const Image shown = side_by_side(pictures);
            step.preview = &shown;
            reporter.report(step);
            step.preview = nullptr;
        },
        constrain);
    return tokens;
}

Image Pipeline::Impl::decode(const Job& job, const HostTensor& tokens, const Reporter& reporter) {
    const HostTensor latents = from_tokens(tokens, job.latent_w(), job.latent_h());
    const Part decoder = decoding_part(model);
    if (decoder != Part::tiny_autoencoder) {
        free_tiny();
    }
    return loaded_model.run(decoder, [&] {
        const BlockWatch watch(loaded_model.backend(decoder), [&](double share) {
            reporter.report({.stage = Stage::decode, .what = "", .share = share});
        });
        return from_planes(loaded_model.decode(latents));
    });
}

// The pictures of a job, in one pass. The figures of the pass are in the first result; the time of
// the loop is shared among all.
void Pipeline::Impl::generate(const Request& request, const Job& job, const OnPicture& on_picture,
                              const Reporter& reporter) {
    Result result;
    result.prompt = job.prompt;
    result.seed = job.seed;
    result.steps = job.steps;
    result.guidance = job.guidance;
    result.cfg_scale = job.cfg_scale;
    result.sigmas = job.sigmas;
    const double load_seconds_before = loaded_model.load_seconds();
    const FreeUnlessKept freed(loaded_model);
    const LoadWatch loads(loaded_model, reporter);
    const FittedImages images = fit_images(request, job);

    // 1. Prompt and reference pictures.
    std::optional<Conditioning> conditioning = condition(job, images, result, reporter);
    note_memory(result);

    // 2. What the loop starts from: noise, or an encoded picture with noise added.
    std::vector<HostTensor> noise;
    for (int i = 0; i < job.n_pictures; ++i) {
        noise.push_back(job.noise
                            ? *job.noise
                            : draw_noise(job.generator, job.seed + static_cast<uint64_t>(i),
                                         job.latent_w(), job.latent_h(), model.sizes.channels));
    }
    std::optional<HostTensor> init;
    if (job.edit) {
        init = conditioning->references.front();
    } else if (images.init) {
        init = encode_image(*images.init, result);
    }
    std::vector<HostTensor> starts;
    std::vector<KnownRegion> known;
    for (const HostTensor& drawn : noise) {
        starts.push_back(to_tokens(init ? add_noise(*init, drawn, job.sigmas.front()) : drawn));
        if (job.edit) {
            known.push_back({to_tokens(drawn), to_tokens(*init), job.edit->cells()});
        }
    }
    const HostTensor start = join_pictures(starts);
    Constrain constrain;
    if (job.edit) {
        constrain = [&](HostTensor& x, float sigma) { blend_each(known, x, sigma); };
    }
    if (job.preview) {
        prepare_preview();
    } else {
        free_tiny();
    }
    note_memory(result);

    // 3. The loop.
    const WorkTimer denoising(loaded_model);
    const HostTensor tokens = loaded_model.run(
        Part::transformer, [&] { return denoise(job, *conditioning, start, constrain, reporter); });
    conditioning.reset();
    result.timings.denoise = denoising.seconds();
    note_memory(result);

    // 4. Pixels.
    for (int i = 0; i < job.n_pictures; ++i) {
        Result picture = result;
        picture.seed = job.seed + static_cast<uint64_t>(i);
        picture.timings = i == 0 ? result.timings : Timings{};
        picture.timings.denoise = result.timings.denoise / job.n_pictures;
        if (i > 0) {
            picture.references_cached += std::exchange(picture.references_encoded, 0);
        }
        const WorkTimer decoding(loaded_model);
        picture.image = decode(job, picture_of(tokens, i), reporter);
        if (job.edit) {
            picture.image = job.edit->finish(request.init->image, picture.image);
        } else if (job.keep_colours) {
            keep_colours_of(images.init ? *images.init : images.references.front(), picture.image);
        }
        picture.timings.decode = decoding.seconds();
        if (i == 0) {
            picture.timings.load = loaded_model.load_seconds() - load_seconds_before;
        }
        note_memory(picture);
        on_picture(std::move(picture));
    }
}

void Pipeline::Impl::generate_several(const Request& request, Job job, int n,
                                      const OnPicture& on_picture, const Reporter& reporter) {
    job.n_pictures = n;
    if (n > 1) {
        memory.limit_pictures(job);
    }
    const int at_once = job.n_pictures;
    for (int done = 0; done < n; done += job.n_pictures) {
        job.n_pictures = std::min(at_once, n - done);
        memory.prepare(job);
        if (done == 0) {
            tell_size(job);
            tell_features(request);
            tell_reference_cost(job);
            loaded_model.set_adapters(job.adapters);
        }
        generate(request, job, on_picture, reporter);
        job.seed += static_cast<uint64_t>(job.n_pictures);
    }
}

size_t Pipeline::Impl::encode_ahead(const Request& request, const Job& job,
                                    const std::vector<std::string>& prompts,
                                    const Reporter& reporter) {
    std::vector<PromptKey> keys;
    for (const std::string& prompt : prompts) {
        const std::string full = with_reference_sentences(prompt, request);
        check_prompt(full);
        keys.push_back({full, job.text_length, identity_of(job.adapters.text_encoder)});
    }
    const auto n_values = static_cast<uint64_t>(model.sizes.text_width * job.text_length);
    keys.resize(std::min(keys.size(), prompts_with_room(n_values * sizeof(float))));
    const size_t n_encoded = keys.size();
    if (job.two_passes) {
        keys.push_back(
            {job.negative_prompt, job.text_length, identity_of(job.adapters.text_encoder)});
    }
    loaded_model.set_adapters(job.adapters);
    const LoadWatch loads(loaded_model, reporter);
    const BlockWatch watch = watch_encoder(reporter);
    try {
        features.prepare_ahead(keys);
    } catch (...) {
        const FreeUnlessKept freed(loaded_model);
        throw;
    }
    return n_encoded;
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&& other) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&& other) noexcept = default;

Pipeline Pipeline::load(const ModelFiles& files, const LoadOptions& options) {
    for (const Part part : kAllParts) {
        if (const std::string& type = chosen_type(options, part); !type.empty()) {
            parse_matrix_type(type);  // refuses an unknown one before files are opened
        }
    }
    return Pipeline(std::make_unique<Impl>(open_model(files, options.variant), options));
}

const FileInfo& Pipeline::model() const {
    return impl_->model.info;
}

const std::string& Pipeline::device() const {
    return impl_->loaded_model.device();
}

Result Pipeline::generate(const Request& request, const Progress& progress) {
    Result made;
    generate_several(
        request, 1, [&](Result result) { made = std::move(result); }, progress);
    return made;
}

void Pipeline::generate_several(const Request& request, int n, const OnPicture& on_picture,
                                const Progress& progress) {
    check_picture_count(request, n);
    const Reporter reporter(request, progress);
    reporter.check_cancel();
    do_work([&] {
        const Job job = impl_->resolve_job(request);
        const CancelWatch cancel(impl_->loaded_model, request);
        impl_->generate_several(request, job, n, on_picture, reporter);
    });
}

size_t Pipeline::encode_prompts(const Request& request, const std::vector<std::string>& prompts,
                                const Progress& progress) {
    const Reporter reporter(request, progress);
    reporter.check_cancel();
    return do_work([&] {
        const Job job = impl_->resolve_job(request);
        impl_->memory.prepare(job);
        if (job.features) {
            return prompts.size();
        }
        const CancelWatch cancel(impl_->loaded_model, request);
        return impl_->encode_ahead(request, job, prompts, reporter);
    });
}

MemoryPlan Pipeline::plan(const Request& request, int n) {
    check_picture_count(request, n);
    Reporter(request, {}).check_cancel();
    return do_work([&] {
        Job job = impl_->resolve_job(request);
        job.n_pictures = n;
        if (n > 1) {
            impl_->memory.limit_pictures(job);
        }
        impl_->tell_size(job);
        MemoryPlan plan = impl_->memory.plan(job, request.cancel);
        plan.width = job.width;
        plan.height = job.height;
        plan.steps = job.steps;
        plan.n_pictures = job.n_pictures;
        return plan;
    });
}

}  // namespace flux2
