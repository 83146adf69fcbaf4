#include "verify/replay.hpp"

#include <flux2/image.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/utf8.hpp"
#include "common/model_choice.hpp"
#include "formats/json_file.hpp"
#include "formats/tensor_type.hpp"
#include "image/image.hpp"
#include "pipeline/denoise.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/prompt.hpp"
#include "pipeline/request.hpp"
#include "pipeline/sampler.hpp"
#include "verify/limits.hpp"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// A recording, the model that replays it, and what is to be made.
struct Run {
    std::string name;  // the recording's file name without extension
    const Recording& recording;
    const Model& model;
    Job job;
    FittedImages images;
    HostTensor noise;  // tokens
    Limits limits;
    size_t n_steps;  // to compute
    Report& report;

    bool is_whole() const { return n_steps + 1 == job.sigmas.size(); }

    void compare(const std::string& tensor, const HostTensor& ours, double limit) const {
        if (recording.has(tensor)) {
            report.compare(name, tensor, ours, recording, limit);
        } else {
            report.note(name + "/" + tensor + ": not recorded here");
        }
    }
};

// ---- What a recording asks for ----

template <typename T>
T setting(const Recording& recording, const nlohmann::json& settings, const char* key) {
    const std::optional<T> value = get_json<T>(settings, key, recording.file());
    check(value.has_value(), ErrorKind::bad_file, recording.file().string(), ": the setting ", key,
          " is missing in its metadata; it is not a recorded run");
    return *value;
}

int whole_setting(const Recording& recording, const nlohmann::json& settings, const char* key) {
    constexpr double kMost = 1e6;
    const double value = setting<double>(recording, settings, key);
    check(value >= 0 && value <= kMost && value == std::floor(value), ErrorKind::bad_file,
          recording.file().string(), ": the setting ", key, " is ", value,
          ", expected a whole number");
    return static_cast<int>(value);
}

// A picture beside the recording.
fs::path recorded_file(const Recording& recording, const nlohmann::json& name, const char* what) {
    const fs::path file = name.is_string() ? name.get<std::string>() : "";
    check(file.has_filename() && file.filename() == file, ErrorKind::bad_file,
          recording.file().string(), ": ", what, " ", utf8_start(name.dump(), 60),
          " is not the name of a file beside it");
    return recording.file().parent_path() / file;
}

std::vector<Image> recorded_references(const Recording& recording, const nlohmann::json& settings) {
    const nlohmann::json names = settings.value("references", nlohmann::json::array());
    check(names.is_array() && names.size() <= kMaxReferences, ErrorKind::bad_file,
          recording.file().string(), ": references is no list of at most ", kMaxReferences,
          " file names");
    std::vector<Image> references;
    for (const nlohmann::json& name : names) {
        references.push_back(load_image(recorded_file(recording, name, "reference")));
    }
    return references;
}

// One of the setting lora: ["a.safetensors", 0.8].
Adapter recorded_adapter(const Recording& recording, const nlohmann::json& entry) {
    constexpr double kMost = 1e6;
    const bool is_pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                         entry[1].is_number() && std::abs(entry[1].get<double>()) <= kMost;
    check(is_pair, ErrorKind::bad_file, recording.file().string(), ": lora has ",
          utf8_start(entry.dump(), 60), ", expected a file name and a strength");
    const auto text = entry[0].get<std::string>();
    const fs::path name = text;
    check(name.has_filename() && name.is_relative() && text.find('\0') == std::string::npos,
          ErrorKind::bad_file, recording.file().string(), ": lora has the file name ",
          utf8_start(entry[0].dump(), 60), ", expected one relative to the recording");
    const fs::path file = (recording.file().parent_path() / name).lexically_normal();
    check(file_exists(file), ErrorKind::bad_file, recording.file().string(), ": was recorded with ",
          file.string(), ", and there is no such file");
    Adapter adapter;
    adapter.file = file;
    adapter.strength = entry[1].get<float>();
    return adapter;
}

std::vector<Adapter> recorded_adapters(const Recording& recording, const nlohmann::json& settings) {
    constexpr size_t kMaxAdapters = 64;
    const nlohmann::json entries = settings.value("lora", nlohmann::json::array());
    check(entries.is_array() && entries.size() <= kMaxAdapters, ErrorKind::bad_file,
          recording.file().string(), ": lora is no list of at most ", kMaxAdapters, " files");
    std::vector<Adapter> adapters;
    for (const nlohmann::json& entry : entries) {
        adapters.push_back(recorded_adapter(recording, entry));
    }
    return adapters;
}

// The settings init, mask and strength.
void add_recorded_init(const Recording& recording, const nlohmann::json& settings,
                       Request& request) {
    if (!settings.contains("init")) {
        return;
    }
    const auto strength = get_json<double>(settings, "strength", recording.file());
    request.init =
        InitImage{load_image(recorded_file(recording, settings["init"], "init")),
                  strength ? std::optional(static_cast<float>(*strength)) : std::nullopt};
    if (settings.contains("mask")) {
        request.inpaint =
            Inpaint{.mask = load_mask(recorded_file(recording, settings["mask"], "mask"))};
    }
}

Request recorded_request(const Recording& recording, const nlohmann::json& settings,
                         std::vector<Adapter> adapters) {
    Request request;
    request.adapters = std::move(adapters);
    request.prompt = setting<std::string>(recording, settings, "prompt");
    request.width = whole_setting(recording, settings, "width");
    request.height = whole_setting(recording, settings, "height");
    request.steps = whole_setting(recording, settings, "steps");
    request.guidance = static_cast<float>(setting<double>(recording, settings, "guidance"));
    request.references = recorded_references(recording, settings);
    add_recorded_init(recording, settings, request);
    return request;
}

// Resolves the request as flux2 would; errors are reported as errors of the recording.
Job resolve_recorded(const Recording& recording, const Request& request, const Model& model) {
    try {
        Job job = resolve(request, model);
        job.adapters = AdapterStore().resolve(request, model);
        return job;
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::bad_argument) {
            throw;
        }
        fail(ErrorKind::bad_file, recording.file().string(), ": ", error.what());
    }
}

// ---- Which model and which limits ----

// As recorded; of a recording that names a noise_seed instead, as torch draws it on a CPU.
HostTensor recorded_noise(const Recording& recording, const nlohmann::json& settings,
                          const Model& model, const Job& job) {
    if (recording.has("noise") || !settings.contains("noise_seed")) {
        return recording.get("noise");
    }
    HostTensor noise({model.sizes.channels, job.latent_w() * job.latent_h(), 1, 1});
    const int seed = whole_setting(recording, settings, "noise_seed");
    noise.data = draw_normal(Generator::cpu_f32, static_cast<uint64_t>(seed), noise.data.size());
    return noise;
}

void check_widths(const Recording& recording, const HostTensor& noise, const Model& model,
                  const Job& job) {
    const int64_t n_tokens = job.latent_w() * job.latent_h();
    check(noise.ne == std::array<int64_t, 4>{model.sizes.channels, n_tokens, 1, 1},
          ErrorKind::bad_file, recording.file().string(), ": noise has ", noise.ne[1],
          " tokens of ", noise.ne[0], " channels, but ", model.transformer.file(), " takes ",
          n_tokens, " of ", model.sizes.channels, " for ", job.width, "x", job.height,
          "; give the model it was recorded with");
    if (recording.has("prompt_embeds")) {
        const int64_t width = recording.get("prompt_embeds").ne[0];
        check(width == model.sizes.text_width, ErrorKind::bad_file, recording.file().string(),
              ": was recorded with text features ", width, " wide, but ", model.transformer.file(),
              " takes ", model.sizes.text_width, "; give the model it was recorded with");
    }
}

double bits(TensorType type) {
    return 8.0 * static_cast<double>(block_bytes(type)) / static_cast<double>(block_elements(type));
}

// The type in memory, or a quantised one in the files that is coarser: expanding it when loading
// does not restore the precision.
TensorType coarsest_type(const Model& model, TensorType in_memory) {
    TensorType coarsest = in_memory;
    for (const Checkpoint* part : {&model.transformer, &*model.text_encoder, &*model.vae}) {
        for (const ModelTensor& tensor : part->tensors()) {
            const TensorType type = tensor.type();
            if (is_quantized(type) && (!is_quantized(coarsest) || bits(type) < bits(coarsest))) {
                coarsest = type;
            }
        }
    }
    return coarsest;
}

// ---- The stages ----

SharedTensor replay_prompt(const Run& run, const Tokenizer& tokenizer, TextEncoder& encoder,
                           const std::string& prefix, const std::string& prompt) {
    PromptFeatures text = encode_prompt_features(tokenizer, encoder, prompt, run.job.text_length);
    if (prefix.empty()) {
        HostTensor ids({static_cast<int64_t>(text.encoded.ids.size()), 1, 1, 1});
        ids.data.assign(text.encoded.ids.begin(), text.encoded.ids.end());
        run.compare("token_ids", ids, 0);
    }
    run.compare(prefix + "prompt_embeds", text.features, run.limits.text);
    return share(std::move(text.features));
}

Conditioning replay_conditioning(const Run& run, LoadedModel& loaded_model) {
    const Tokenizer tokenizer = load_tokenizer(*run.model.text_encoder);
    Conditioning conditioning;
    conditioning.txt =
        replay_prompt(run, tokenizer, loaded_model.text_encoder(), "", run.job.prompt);
    if (run.job.two_passes) {
        conditioning.negative_txt = replay_prompt(run, tokenizer, loaded_model.text_encoder(),
                                                  "negative_", run.job.negative_prompt);
    }
    for (size_t i = 0; i < run.images.references.size(); ++i) {
        HostTensor latents = loaded_model.vae().encode(to_planes(run.images.references[i]));
        const size_t n_edited = run.job.edit ? 1 : 0;
        run.compare(
            i < n_edited ? "source_latents" : "reference_latents_" + std::to_string(i - n_edited),
            to_tokens(latents), run.limits.autoencoder);
        conditioning.references.push_back(std::move(latents));
    }
    return conditioning;
}

// What the loop starts from and what it keeps, when a part of a picture is repainted.
struct ReplayedEdit {
    HostTensor start;
    KnownRegion known;
};

ReplayedEdit replay_edit(const Run& run, const HostTensor& source) {
    ReplayedEdit edit;
    edit.known = {run.noise, to_tokens(source), run.job.edit->cells()};
    HostTensor cells({1, static_cast<int64_t>(edit.known.mask.size()), 1, 1});
    cells.data = edit.known.mask;
    run.compare("mask_cells", cells, Limits::kSigmas);
    edit.start = add_noise(edit.known.latents, edit.known.noise, run.job.sigmas.front());
    run.compare("start", edit.start, run.limits.autoencoder);
    return edit;
}

HostTensor replay_steps(const Run& run, Transformer& transformer, Conditioning conditioning) {
    HostTensor sigmas({static_cast<int64_t>(run.job.sigmas.size()), 1, 1, 1});
    sigmas.data = run.job.sigmas;
    run.compare("sigmas", sigmas, Limits::kSigmas);
    HostTensor start = run.noise;
    Constrain constrain;
    if (run.job.edit) {
        ReplayedEdit edit = replay_edit(run, conditioning.references.front());
        start = std::move(edit.start);
        constrain = [known = std::move(edit.known)](HostTensor& x, float sigma) {
            known.blend(x, sigma);
        };
    }
    Denoiser denoiser(transformer, std::move(conditioning), run.job.latent_w(), run.job.latent_h(),
                      {.guidance = run.job.guidance,
                       .cfg_scale = run.job.cfg_scale,
                       .guided_steps = run.job.guided_steps,
                       .kv_references = run.model.variant == Variant::kv});
    return sample(
        std::move(start),
        {run.job.sigmas.begin(),
         run.job.sigmas.begin() + static_cast<std::ptrdiff_t>(run.n_steps + 1)},
        [&](const HostTensor& x, float sigma, size_t step) {
            return denoiser.velocity(x, sigma, step);
        },
        [&](const HostTensor& x, size_t step, const HostTensor&) {
            run.compare("latents_" + std::to_string(step), x,
                        step == 0 ? run.limits.first_step : run.limits.run);
        },
        constrain);
}

// In 0..1; nothing when no picture was recorded.
std::optional<HostTensor> recorded_picture(const Recording& recording) {
    if (recording.has("image")) {
        return recording.get("image");
    }
    const fs::path png = fs::path(recording.file()).replace_extension(".png");
    if (file_exists(png)) {
        return to_unit_range(to_planes(load_image(png)));
    }
    return std::nullopt;
}

void replay_picture(const Run& run, LoadedModel& loaded_model, const HostTensor& tokens) {
    const std::optional<HostTensor> recorded = recorded_picture(run.recording);
    if (!recorded) {
        run.report.note(run.name + "/image: not recorded here");
        return;
    }
    const HostTensor latents = from_tokens(tokens, run.job.latent_w(), run.job.latent_h());
    const HostTensor image = to_unit_range(loaded_model.vae().decode(latents));
    if (run.recording.has("image")) {
        run.compare("image", image, run.limits.run);
    }
    run.report.compare_pictures(run.name, image, *recorded, run.limits.psnr);
}

// Whether a shortened run does not compute this tensor.
bool is_left_out(const Run& run, const std::string& tensor) {
    for (size_t step = run.n_steps; step + 1 < run.job.sigmas.size(); ++step) {
        if (tensor == "latents_" + std::to_string(step)) {
            return true;
        }
    }
    return tensor == "image" && !run.is_whole();
}

// Every recorded tensor must have been compared, so that a missing step or reference is noticed.
void check_nothing_left(const Run& run) {
    for (const std::string& tensor : run.recording.names()) {
        const bool expected = tensor != "noise" && !is_left_out(run, tensor);
        if (expected && !run.report.has(run.name, tensor)) {
            run.report.fail(run.name, tensor, "recorded, but its settings do not lead to it");
        }
    }
}

void replay_one(const fs::path& file, ModelOptions options, std::vector<Adapter> adapters,
                size_t max_steps, Report& report) {
    const Recording recording(file);
    const nlohmann::json settings = recording.settings();
    options.load.variant = recorded_variant(recording);
    const Model model = open_model(choose_files(options, nullptr), "");
    if (adapters.empty()) {
        adapters = recorded_adapters(recording, settings);
    }
    const Request request = recorded_request(recording, settings, std::move(adapters));
    Job job = resolve_recorded(recording, request, model);
    FittedImages images = fit_images(request, job);
    HostTensor noise = recorded_noise(recording, settings, model, job);
    check_widths(recording, noise, model, job);
    LoadedModel loaded_model(model, options.load);
    const TensorType type = parse_matrix_type(options.load.type);
    const TensorType coarsest = coarsest_type(model, type);
    const size_t n_steps = job.sigmas.size() - 1;
    const Run run{.name = file.stem().string(),
                  .recording = recording,
                  .model = model,
                  .job = std::move(job),
                  .images = std::move(images),
                  .noise = std::move(noise),
                  .limits = limits_for(loaded_model.backend(Part::transformer), coarsest),
                  .n_steps = max_steps == 0 ? n_steps : std::min(max_steps, n_steps),
                  .report = report};
    report.note(concat(run.name, ": ", model.transformer.file(), " (", model.info.name, "), ",
                       type_name(type), " in memory on ", loaded_model.device(), ", limits of ",
                       type_name(coarsest)));
    for (const Adapter& adapter : request.adapters) {
        report.note(
            concat(run.name, ": with ", adapter.file.string(), " at strength ", adapter.strength));
    }
    loaded_model.set_adapters(run.job.adapters);
    Conditioning conditioning = replay_conditioning(run, loaded_model);
    const HostTensor tokens =
        replay_steps(run, loaded_model.transformer(), std::move(conditioning));
    if (run.is_whole()) {
        replay_picture(run, loaded_model, tokens);
    } else {
        report.note(concat(run.name, ": the first ", run.n_steps, " of ", n_steps, " steps"));
    }
    check_nothing_left(run);
}

}  // namespace

void replay(const std::vector<fs::path>& recordings, const ModelOptions& model,
            const std::vector<Adapter>& adapters, size_t max_steps, Report& report) {
    std::set<std::string> names;
    for (const fs::path& file : recordings) {
        check(names.insert(file.stem().string()).second, ErrorKind::bad_argument,
              "two recordings are called ", file.stem().string(),
              ", so their lines could not be told apart; replay them one at a time");
    }
    for (const fs::path& file : recordings) {
        replay_one(file, model, adapters, max_steps, report);
    }
}

}  // namespace flux2::cli
