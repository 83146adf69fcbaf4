#include "train/train_run.hpp"

#include <flux2/device.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "base/log.hpp"
#include "base/progress_bar.hpp"
#include "base/ram.hpp"
#include "base/system.hpp"
#include "common/cancel.hpp"
#include "common/download_display.hpp"
#include "common/model_choice.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/memory_limits.hpp"
#include "pipeline/model.hpp"
#include "train/continued_adapter.hpp"
#include "train/dataset_file.hpp"
#include "train/loss_curve.hpp"
#include "train/run_files.hpp"
#include "train/sample_prompts.hpp"
#include "train/samples.hpp"
#include "train/train_display.hpp"
#include "train/train_plan.hpp"
#include "train/trainer.hpp"
#include "train/training_data.hpp"
#include "train/training_log.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kUsualSide = 512;
constexpr int64_t kUsualSteps = 1600;

// What is trained and what is held out.
struct Data {
    std::vector<DatasetSource> sources, validation_sources;
    std::vector<DatasetPicture> pictures, validation_pictures;
    std::vector<Request> sample_requests;
};

// The base model where a folder has several: what is trained on it works on the distilled one too.
ModelFiles choose_training_files(const TrainOptions& o) {
    ModelOptions choice = o.model;
    if (choice.load.variant.empty()) {
        choice.load.variant = "base";
    }
    return choose_files(choice, lines_on_stderr(o.quiet));
}

std::vector<DatasetSource> sources_of(const fs::path& path, const FolderOptions& folder,
                                      const Model& model, Problems& problems) {
    if (to_lower(path.extension().string()) == ".toml") {
        return read_dataset_file(path, problems);
    }
    const int side = std::min({kUsualSide, model.defaults.width, model.defaults.height});
    const ImageSize size = folder.resolution.value_or(ImageSize{side, side});
    DatasetSource source;
    source.name = path.string();
    source.image_directory = path;
    source.caption_extension = folder.caption_extension;
    source.default_caption = folder.default_caption;
    source.control_directory = folder.control_directory;
    source.no_resize_control = folder.no_resize_control;
    source.bucket = {.width = size.width,
                     .height = size.height,
                     .enabled = !folder.no_bucket,
                     .no_upscale = folder.no_upscale};
    source.batch_size = folder.batch_size;
    source.num_repeats = folder.num_repeats;
    return {source};
}

// Takes n pictures, evenly spread, out of those to be trained.
void hold_out(size_t n, Data& data) {
    const size_t all = data.pictures.size();
    check(n < all, ErrorKind::bad_argument, "--validation_pictures ", n, " of ", all,
          " leaves nothing to train on; hold back fewer");
    for (size_t i = n; i > 0; --i) {
        const auto at =
            data.pictures.begin() + static_cast<std::ptrdiff_t>((i * all - all / 2) / n);
        data.validation_pictures.insert(data.validation_pictures.begin(), std::move(*at));
        data.pictures.erase(at);
    }
    data.validation_sources = data.sources;
}

Data read_data(const TrainOptions& o, const Model& model) {
    const int n_threads = o.model.load.threads > 0 ? o.model.load.threads : physical_cores();
    Problems problems;
    Data data;
    data.sources = sources_of(o.dataset, o.folder, model, problems);
    data.pictures = find_pictures(data.sources, n_threads, problems);
    if (!o.validation_dataset.empty()) {
        data.validation_sources = sources_of(o.validation_dataset, o.folder, model, problems);
        data.validation_pictures = find_pictures(data.validation_sources, n_threads, problems);
    }
    if (!o.sample_prompts.empty()) {
        data.sample_requests = read_sample_prompts(o.sample_prompts, problems);
    }
    problems.throw_if_any();
    if (o.validation_pictures > 0) {
        hold_out(o.validation_pictures, data);
    }
    return data;
}

// Steps from epochs, warm-up from a share.
void settle_steps(const Data& data, TrainOptions& o) {
    const DataOrder order(data.sources, data.pictures, o.trainer.seed);
    const int64_t accumulation = o.trainer.gradient_accumulation_steps;
    o.trainer.n_steps = o.max_steps.value_or(kUsualSteps);
    if (o.max_epochs) {
        o.trainer.n_steps =
            (*o.max_epochs * order.batches_per_epoch() + accumulation - 1) / accumulation;
    }
    if (o.warmup_share) {
        o.trainer.rate.warmup_steps =
            std::llround(*o.warmup_share * static_cast<double>(o.trainer.n_steps));
    }
    check(o.trainer.rate.warmup_steps <= o.trainer.n_steps, ErrorKind::bad_argument,
          "--lr_warmup_steps ", o.trainer.rate.warmup_steps, " are more than the run's ",
          o.trainer.n_steps, " steps; warm up for fewer");
}

std::map<std::string, std::string> facts_of(const TrainOptions& o, const Model& model,
                                            const Data& data, const TrainedAdapter& adapter) {
    const TrainerOptions& t = o.trainer;
    std::map<std::string, std::string> facts = {
        {"modelspec.title", o.output_name},
        {"ss_output_name", o.output_name},
        {"ss_network_module", "flux2-train"},
        {"ss_base_model_version", model.info.name},
        {"ss_sd_model_name", model.info.path.filename().string()},
        {"ss_network_dim", concat(adapter.rank())},
        {"ss_network_alpha", concat(adapter.alpha())},
        {"ss_network_dropout", concat(adapter.dropout())},
        {"ss_learning_rate", concat(t.rate.peak)},
        {"ss_lr_scheduler", to_string(t.rate.schedule)},
        {"ss_lr_warmup_steps", concat(t.rate.warmup_steps)},
        {"ss_max_train_steps", concat(t.n_steps)},
        {"ss_gradient_accumulation_steps", concat(t.gradient_accumulation_steps)},
        {"ss_max_grad_norm", concat(t.max_grad_norm)},
        {"ss_optimizer", concat(t.optimiser.eight_bits ? "AdamW8bit" : "AdamW",
                                "(weight_decay=", t.optimiser.weight_decay, ")")},
        {"ss_seed", concat(t.seed)},
        {"ss_timestep_sampling", to_string(t.noise_levels.sampling)},
        {"ss_discrete_flow_shift", concat(t.noise_levels.discrete_flow_shift)},
        {"ss_weighting_scheme", to_string(t.noise_levels.weighting)},
        {"ss_num_train_images", concat(data.pictures.size())},
        {"ss_num_validation_images", concat(data.validation_pictures.size())},
        {"ss_total_batch_size", concat(data.sources.front().batch_size)},
        {"modelspec.resolution",
         concat(data.sources.front().bucket.width, "x", data.sources.front().bucket.height)},
        {"ss_caption_dropout_rate", concat(t.caption_dropout)},
        {"ss_ema_decay", concat(t.ema_decay)},
        {"flux2_version", version()}};
    if (adapter.kind() == NetworkKind::lokr) {
        facts["ss_network_args"] =
            concat("{\"algo\": \"lokr\", \"factor\": ", adapter.factor(), "}");
    }
    if (!o.network_weights.empty()) {
        facts["ss_network_weights"] = o.network_weights.filename().string();
    }
    if (!o.trigger_word.empty()) {
        facts["modelspec.trigger_phrase"] = o.trigger_word;
    }
    return facts;
}

// The most that the files of a run take on disk: the LoRAs, and the states that are kept with the
// one that is being written.
uint64_t output_bytes(const TrainOptions& o, size_t n_parameters) {
    const int64_t every = o.save_every > 0 ? o.save_every : o.trainer.n_steps;
    const int64_t kept =
        o.save_last > 0 ? std::min(o.save_last, o.trainer.n_steps) : o.trainer.n_steps;
    const auto n_adapters = static_cast<uint64_t>(kept / every + 2);
    const uint64_t n_arrays = o.trainer.ema_decay > 0 ? 2 : 1;
    return (n_adapters + 3 * n_arrays) * n_parameters * sizeof(float) +
           3 * AdamW::state_bytes(n_parameters, o.trainer.optimiser.eight_bits);
}

ModelFiles sample_files(const TrainOptions& o, const ModelFiles& trained) {
    if (o.sample_model.empty()) {
        return trained;
    }
    if (is_folder(o.sample_model)) {
        return find_model(o.sample_model).files;
    }
    ModelFiles files = trained;
    files.transformer = o.sample_model;
    return files;
}

// The loop over steps with all that is written and shown.
class Run {
  public:
    Run(const TrainOptions& o, RunFiles& files, Trainer& trainer, TrainedAdapter& adapter,
        const TrainingData& held_out, Samples* samples, TrainDisplay& display)
        : o_(o),
          files_(files),
          trainer_(trainer),
          adapter_(adapter),
          held_out_(held_out),
          samples_(samples),
          display_(display),
          log_(o.output_folder / "metrics.jsonl", trainer.n_done()) {}

    void go() {
        display_.start(trainer_.n_done(), o_.trainer.n_steps);
        try {
            if (trainer_.n_done() == 0) {
                validate();
                if (samples_ != nullptr && o_.sample_at_first) {
                    sample();
                }
            }
            while (!trainer_.is_finished()) {
                do_step();
            }
            if (log_.validation_losses().empty() ||
                log_.validation_losses().back().step != trainer_.n_done()) {
                validate();
            }
            save();
            display_.say(concat("written: ", files_.save_result(trainer_, adapter_).string()));
        } catch (const Error& error) {
            keep_after(error);
        } catch (const std::bad_alloc&) {
            keep_after(Error(ErrorKind::out_of_memory,
                             "out of memory; close other programs or train smaller pictures"));
        }
    }

  private:
    void do_step() {
        const auto start = std::chrono::steady_clock::now();
        const StepResult result = trainer_.step(&cancel_requested);
        log_.add_step(
            result,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        display_.show_step(result, log_);
        const bool is_last = trainer_.is_finished();
        const auto is_due = [&](int64_t every) {
            return every > 0 && result.step % every == 0 && !is_last;
        };
        if (is_due(o_.validate_every)) {
            validate();
        }
        // Pictures before the state: those of a step that is repeated are made again.
        if (samples_ != nullptr && (is_due(o_.sample_every) || (is_last && o_.sample_every > 0))) {
            sample();
        }
        if (is_due(o_.save_every)) {
            save();
        }
    }

    void validate() {
        if (held_out_.pictures.empty()) {
            return;
        }
        const double loss = trainer_.validation_loss(held_out_, &cancel_requested);
        log_.add_validation(trainer_.n_done(), loss);
        display_.say(concat("step ", trainer_.n_done(), ": validation loss ", loss_text(loss)));
    }

    void sample() {
        const fs::path folder = o_.output_folder / "sample";
        make_folders(folder);
        const fs::path file = folder / (o_.output_name + "-so-far.safetensors");
        files_.write_adapter(file, trainer_, adapter_);
        samples_->make(trainer_.n_done(), file);
        std::error_code ignored;
        fs::remove(file, ignored);
    }

    void save() {
        files_.save(trainer_, adapter_);
        const std::string svg = loss_curve_svg(log_.losses(), log_.validation_losses());
        write_whole_file(files_.in_folder("-loss.svg"), std::as_bytes(std::span(svg)));
    }

    // Keeps the state before an error or a signal, and tells how to go on.
    [[noreturn]] void keep_after(const Error& error) {
        const bool can_write =
            error.kind() != ErrorKind::out_of_disk && error.kind() != ErrorKind::bad_file;
        if (can_write && trainer_.n_done() > 0) {
            save();
        }
        const fs::path state = files_.last_state();
        throw Error(
            error.kind(),
            concat(error.what(), state.empty() ? "; no step was done that could be resumed"
                                               : concat("; the state is kept, and --resume ",
                                                        state.string(), " continues it")));
    }

    const TrainOptions& o_;
    RunFiles& files_;
    Trainer& trainer_;
    TrainedAdapter& adapter_;
    const TrainingData& held_out_;
    Samples* samples_;
    TrainDisplay& display_;
    TrainingLog log_;
};

void tell_model(const Model& model) {
    if (model.defaults.distilled && model.variant != Variant::dev) {
        log(LogLevel::warning,
            concat(model.info.path.filename().string(), " is a distilled model (",
                   model.info.variant_reason,
                   "): LoRAs trained on it are often weak or blurred; train on the base model, and "
                   "use the LoRA with the distilled one"));
    }
}

std::string summary(const TrainOptions& o, const Data& data, const TrainedAdapter& adapter) {
    const size_t n_held_out = data.validation_pictures.size();
    const bool continues = !o.network_weights.empty();
    return concat("dataset: ", data.pictures.size(), " pictures",
                  n_held_out == 0 ? "" : concat(", ", n_held_out, " held out"),
                  adapter.kind() == NetworkKind::lokr ? "\nLoKr: rank " : "\nLoRA: rank ",
                  adapter.rank(), ", alpha ", adapter.alpha(),
                  o.adapter.alpha || continues ? "" : " (equal to the rank)", ", ",
                  adapter.modules().size(), " matrices, ", adapter.parameters().size(),
                  " parameters", continues ? ", from " + o.network_weights.string() : "",
                  "\ntraining: ", o.trainer.n_steps, " steps");
}

TrainedAdapter first_adapter(const TrainOptions& o, const Model& model) {
    return o.network_weights.empty()
               ? TrainedAdapter(model.sizes, o.adapter)
               : continue_adapter(o.network_weights, model.sizes, model.info.name, o.adapter);
}

struct Encoded {
    TrainingData trained, held_out;
};

Encoded encode(const TrainOptions& o, const Model& model, LoadedModel& loaded, const Data& data,
               TrainDisplay& display) {
    EncodingOptions options = {.trigger_word = o.trigger_word,
                               .mirrored = o.trainer.flips,
                               .without_caption = o.trainer.caption_dropout > 0,
                               .cache_folder = o.model.load.cache_folder};
    if (!options.cache_folder.empty()) {
        options.cache_folder /= "training";
    }
    const auto on_encoded = [&](double share) { display.show_encoding(share); };
    Encoded encoded;
    encoded.trained =
        encode_dataset(model, loaded, data.sources, data.pictures, options, on_encoded);
    options.mirrored = options.without_caption = false;
    encoded.held_out = encode_dataset(model, loaded, data.validation_sources,
                                      data.validation_pictures, options, on_encoded);
    const size_t n = encoded.trained.n_encoded + encoded.held_out.n_encoded;
    display.say(n == 0 ? "encoded before: all pictures and captions"
                       : concat("encoded: ", n, " pictures and captions"));
    return encoded;
}

// Throws out_of_memory when the run exceeds the RAM that this process can have; program_bytes are
// in use before anything of the plan.
void check_ram(const TrainPlan& plan, uint64_t program_bytes) {
    const Ram ram = process_ram();
    const uint64_t needed = plan.host_bytes() + program_bytes;
    check(ram.most == 0 || needed <= ram.most, ErrorKind::out_of_memory,
          "there is too little memory: training takes ", readable_bytes(needed), " of RAM, and ",
          ram.why_most, "; train smaller pictures, a lower rank or weights of a smaller --type");
}

// Blocks are streamed where the device's memory, or what may be used of it, is too small. Throws
// out_of_memory when that does not suffice.
TrainPlan place_weights(const TrainOptions& o, const Model& model, const Data& data,
                        const Backend& backend, const TrainedAdapter& adapter,
                        WeightOptions& weights) {
    const auto measured = [&] {
        return plan_memory(o, model, data.sources, data.pictures, adapter, weights);
    };
    TrainPlan plan = measured();
    const uint64_t limit = usable_bytes(backend.device(), 0, o.model.load.max_device_bytes);
    if (plan.device_bytes() <= limit) {
        return plan;
    }
    weights.stream_blocks = true;
    plan = measured();
    check(plan.device_bytes() <= limit, ErrorKind::out_of_memory, "training takes ",
          readable_bytes(plan.device_bytes()), " on ", plan.device, " with streamed blocks, ",
          readable_bytes(limit),
          " may be used; train smaller pictures or weights of a smaller --type");
    return plan;
}

}  // namespace

void train(TrainOptions o) {
    TrainDisplay display(o.quiet);
    const ModelFiles files = choose_training_files(o);
    const Model model = open_model(files, o.model.load.variant);
    check(model.text_encoder.has_value(), ErrorKind::bad_file, files.transformer.string(),
          ": captions need a text encoder; name it with --llm");
    tell_model(model);
    const Data data = read_data(o, model);
    settle_steps(data, o);
    const uint64_t program_bytes = own_memory_bytes();
    TrainedAdapter adapter = first_adapter(o, model);
    display.say(summary(o, data, adapter));
    WeightOptions weights = weight_options(o.model.load, Part::transformer, Placement::device);
    const LoadOptions load = with_settled_split(o.model.load);
    LoadedModel loaded(model, load);
    loaded.set_cancel(&cancel_requested);
    const Backend& backend = loaded.backend(Part::transformer);
    TrainPlan plan = place_weights(o, model, data, backend, adapter, weights);
    check_ram(plan, program_bytes);
    if (o.plan) {
        TrainingPass pass(backend, model.transformer, adapter, weights, std::nullopt,
                          reference_mode(model));
        add_times(plan, pass, adapter.parameters().size());
        std::cout << plan_text(plan, o.trainer.n_steps);
        return;
    }
    RunFiles run_files(o, settings_of(o, model, data.sources, data.pictures, adapter),
                       facts_of(o, model, data, adapter));
    std::optional<TrainingState> state = run_files.find_state();
    check_free_space(run_files.in_folder(".safetensors"),
                     output_bytes(o, adapter.parameters().size()));
    const Encoded encoded = encode(o, model, loaded, data, display);

    TrainingPass pass(backend, model.transformer, adapter, weights, std::nullopt,
                      reference_mode(model));
    o.trainer.n_threads = backend.n_threads();
    Trainer trainer(pass, adapter, encoded.trained,
                    DataOrder(data.sources, data.pictures, o.trainer.seed), o.trainer);
    if (state) {
        trainer.restore(std::move(*state));
        display.say(concat("resumed after step ", trainer.n_done()));
    } else if (o.resume) {
        display.say(concat(o.resume->string(), " has no state; the run begins at step 1"));
    }
    std::optional<Samples> samples;
    if (!data.sample_requests.empty()) {
        samples.emplace(sample_files(o, files), o.model.load, data.sample_requests,
                        o.output_folder / "sample", o.output_name, &cancel_requested);
    }
    Run(o, run_files, trainer, adapter, encoded.held_out, samples ? &*samples : nullptr, display)
        .go();
}

}  // namespace flux2::cli
