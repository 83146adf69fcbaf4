#include "train/run_files.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStatesKept = 2;

// By name, size and a part of the contents: pieces spread evenly over each file, which differ for
// other weights of the same shapes, since reading many gigabytes would delay each start.
std::string identity_of(const Checkpoint& checkpoint) {
    constexpr size_t kPieces = 1024;
    constexpr size_t kPieceBytes = 4096;
    uint64_t n_bytes = 0;
    WideHash hash;
    for (const MappedFile& file : checkpoint.source().files()) {
        const std::span<const std::byte> bytes = file.bytes();
        n_bytes += bytes.size();
        const size_t step = std::max(bytes.size() / kPieces, kPieceBytes);
        for (size_t at = 0; at < bytes.size(); at += step) {
            hash.add(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)));
        }
    }
    return concat(checkpoint.source().path().filename().string(), " of ", n_bytes, " bytes ",
                  hash.hex().substr(0, 12));
}

std::string identity_of(const std::vector<DatasetSource>& sources,
                        const std::vector<DatasetPicture>& pictures) {
    WideHash hash;
    for (const DatasetPicture& picture : pictures) {
        const DatasetSource& source = sources[picture.source];
        hash.add(picture.content).add(picture.caption);
        hash.add(concat(picture.source, " ", picture.trained.width, " ", picture.trained.height,
                        " ", source.batch_size, " ", source.num_repeats, " ",
                        source.no_resize_control));
        if (source.control_resolution) {
            hash.add(
                concat(source.control_resolution->width, " ", source.control_resolution->height));
        }
    }
    return concat(pictures.size(), " pictures ", hash.hex().substr(0, 12));
}

// By its contents, wherever it lies.
std::string identity_of(const fs::path& file) {
    const MappedFile mapped(file);
    return concat(file.filename().string(), " ",
                  WideHash().add(mapped.bytes()).hex().substr(0, 12));
}

std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
        all += concat(all.empty() ? "" : " ", text);
    }
    return all;
}

// The file that was named, or of a folder the newest state of the run in it; empty: there is none.
fs::path state_named(const fs::path& named, const std::string& name) {
    if (!is_folder(named)) {
        return named;
    }
    const std::vector<int64_t> steps = stored_steps(named, name);
    return steps.empty() ? fs::path() : state_file(named, name, steps.back());
}

}  // namespace

RunSettings settings_of(const TrainOptions& o, const Model& model,
                        const std::vector<DatasetSource>& sources,
                        const std::vector<DatasetPicture>& pictures,
                        const TrainedAdapter& adapter) {
    const TrainerOptions& t = o.trainer;
    const NoiseLevels& levels = t.noise_levels;
    RunSettings settings;
    const auto set = [&](const char* name, const auto& value) { settings[name] = concat(value); };
    set("diffusion-model", identity_of(model.transformer));
    if (model.variant == Variant::kv) {
        set("variant", "kv");
    }
    if (model.text_encoder) {
        set("llm", identity_of(*model.text_encoder));
    }
    set("vae", identity_of(model.vae ? *model.vae : *model.tiny));
    set("type", o.model.load.type + o.model.load.transformer.type);
    set("dataset", identity_of(sources, pictures));
    set("trigger_word", o.trigger_word);
    set("caption_dropout_rate", t.caption_dropout);
    set("flip_aug", t.flips);
    if (!o.network_weights.empty()) {
        set("network_weights", identity_of(o.network_weights));
    }
    if (adapter.kind() == NetworkKind::lokr) {
        set("network_module", "lokr");
        set("factor", adapter.factor());
    }
    set("network_dim", adapter.rank());
    set("network_alpha", adapter.alpha());
    if (adapter.dropout() > 0) {
        set("network_dropout", adapter.dropout());
    }
    set("include_patterns", joined(o.adapter.include));
    set("exclude_patterns", joined(o.adapter.exclude));
    set("learning_rate", t.rate.peak);
    set("lr_scheduler", to_string(t.rate.schedule));
    set("lr_warmup_steps", t.rate.warmup_steps);
    if (t.rate.schedule != RateSchedule::constant) {  // else a run can be made longer
        set("max_train_steps", t.n_steps);
        set("lr_scheduler_min_lr_ratio", t.rate.min_ratio);
    }
    if (t.optimiser.eight_bits) {
        set("optimizer_type", "adamw8bit");
    }
    set("weight_decay", t.optimiser.weight_decay);
    set("max_grad_norm", t.max_grad_norm);
    set("gradient_accumulation_steps", t.gradient_accumulation_steps);
    set("ema_decay", t.ema_decay);
    set("seed", t.seed);
    set("timestep_sampling", to_string(levels.sampling));
    set("weighting_scheme", to_string(levels.weighting));
    set("discrete_flow_shift", levels.discrete_flow_shift);
    set("sigmoid_scale", levels.sigmoid_scale);
    set("logit_mean", levels.logit_mean);
    set("logit_std", levels.logit_std);
    set("mode_scale", levels.mode_scale);
    set("min_timestep", levels.min_timestep);
    set("max_timestep", levels.max_timestep);
    set("preserve_distribution_shape", levels.preserve_distribution_shape);
    return settings;
}

RunFiles::RunFiles(const TrainOptions& options, RunSettings settings,
                   std::map<std::string, std::string> facts)
    : options_(options), settings_(std::move(settings)), facts_(std::move(facts)) {
    make_folders(options.output_folder);
    check_writable(in_folder(".safetensors"));
}

fs::path RunFiles::in_folder(const std::string& ending) const {
    return options_.output_folder / (options_.output_name + ending);
}

std::optional<TrainingState> RunFiles::find_state() const {
    if (!options_.resume) {
        return std::nullopt;
    }
    const fs::path file = state_named(*options_.resume, options_.output_name);
    if (file.empty()) {
        return std::nullopt;
    }
    TrainingState state = read_state(file);
    check_same_settings(state.settings, settings_, file);
    return state;
}

void RunFiles::write_adapter(const fs::path& file, Trainer& trainer,
                             const TrainedAdapter& adapter) const {
    const Trainer::ResultValues values(trainer);
    std::map<std::string, std::string> metadata = facts_;
    metadata["ss_steps"] = std::to_string(trainer.n_done());
    adapter.write(file, options_.form, metadata, options_.save_type);
}

void RunFiles::save(Trainer& trainer, const TrainedAdapter& adapter) const {
    const int64_t step = trainer.n_done();
    // The state last: a run that is resumed from it finds the LoRA file too.
    write_adapter(adapter_file(options_.output_folder, options_.output_name, step), trainer,
                  adapter);
    write_state(state_file(options_.output_folder, options_.output_name, step),
                trainer.state(settings_));
    remove_old(step);
}

fs::path RunFiles::save_result(Trainer& trainer, const TrainedAdapter& adapter) const {
    const fs::path file = in_folder(".safetensors");
    write_adapter(file, trainer, adapter);
    return file;
}

fs::path RunFiles::last_state() const {
    return state_named(options_.output_folder, options_.output_name);
}

void RunFiles::remove_old(int64_t step) const {
    const fs::path& folder = options_.output_folder;
    const std::string& name = options_.output_name;
    std::error_code ignored;
    std::vector<int64_t> steps = stored_steps(folder, name);
    std::erase_if(steps, [&](int64_t other) { return other > step; });
    for (size_t i = 0; i + kStatesKept < steps.size(); ++i) {
        fs::remove(state_file(folder, name, steps[i]), ignored);
    }
    if (options_.save_last == 0) {
        return;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
        const std::string prefix = name + "-step", found = entry.path().stem().string();
        if (entry.path().extension() == ".safetensors" && found.starts_with(prefix)) {
            const std::string digits = found.substr(prefix.size());
            const bool is_number =
                digits.size() == 8 && digits.find_first_not_of("0123456789") == std::string::npos;
            if (is_number && std::stoll(digits) <= step - options_.save_last) {
                fs::remove(entry.path(), ignored);
            }
        }
    }
}

}  // namespace flux2::cli
