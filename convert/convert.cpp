#include "convert.hpp"

#include "base/check.hpp"
#include "checkpoints/fit.hpp"
#include "checkpoints/inventory.hpp"
#include "formats/sha256.hpp"
#include "measured_types.hpp"
#include "merge.hpp"
#include "output_error.hpp"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

namespace flux2::convert {
namespace {

// "BF16", or "Q4_K + F32" when there are several.
std::string types_of(const Checkpoint& checkpoint) {
    std::map<std::string, int64_t> elements;
    for (const ModelTensor& tensor : checkpoint.tensors()) {
        for (const Piece& piece : tensor.pieces) {
            elements[type_name(piece.type)] += piece.n_elements;
        }
    }
    std::vector<std::pair<int64_t, std::string>> by_share;
    for (const auto& [name, n] : elements) {
        by_share.emplace_back(-n, name);
    }
    std::sort(by_share.begin(), by_share.end());
    std::string text;
    for (const auto& [n, name] : by_share) {
        text += (text.empty() ? "" : " + ") + name;
    }
    return text;
}

void require_readable(const Checkpoint& checkpoint, const ModelTensor& tensor) {
    for (const Piece& piece : tensor.pieces) {
        const bool number = is_float(piece.type) || is_quantized(piece.type);
        check(piece.scaled != nullptr || (number && converts_to_f32(piece.type)),
              ErrorKind::unsupported, checkpoint.file(), ": tensor ", tensor.name, " is of type ",
              type_name(piece.type),
              ", which holds no weights this program can read; use the bf16 checkpoint");
    }
}

void check_requantize(const Checkpoint& checkpoint, const ModelTensor& tensor, TensorType target,
                      bool changed, bool allowed) {
    // FP8 and MXFP8 values are floats and do not count as quantised.
    const bool quantised = is_quantized(tensor.type()) ||
                           tensor.type() == TensorType::scaled_nvfp4 ||
                           tensor.type() == TensorType::scaled_i8;
    const bool lossy_twice =
        quantised && is_quantized(target) && (changed || tensor.type() != target);
    check(allowed || !lossy_twice, ErrorKind::bad_argument, checkpoint.file(), ": tensor ",
          tensor.name, " is already quantised to ", type_name(tensor.type()), "; making ",
          type_name(target), changed ? " of it with LoRAs" : " of it",
          " loses more than converting the original would. Use the original, or add "
          "--allow-requantize");
}

// Layers after the last one used, and the output head.
bool is_trimmed_away(const std::string& name, int64_t n_layers) {
    if (name == "output.weight") {
        return true;
    }
    return name.starts_with("blk.") && std::stoll(name.substr(4)) >= n_layers;
}

// Types that were replaced because of row lengths; one line for all tensors with the same
// replacement.
struct Fallbacks {
    struct Group {
        int n = 0;
        std::string example;
    };
    std::map<std::string, Group> groups;  // by what happened

    void add(const ExpectedTensor& tensor, const TypeChoice& choice) {
        Group& group =
            groups[concat("rows of ", tensor.shape.ne[0], " do not fit ", type_name(*choice.wanted),
                          " (a multiple of ", block_elements(*choice.wanted),
                          " is needed), stored as ", type_name(choice.type))];
        if (group.n++ == 0) {
            group.example = tensor.name;
        }
    }
    void report(std::vector<std::string>& warnings) const {
        for (const auto& [what, group] : groups) {
            warnings.push_back(concat(group.n, " tensors, ", group.example, " among them: ", what));
        }
    }
};

void add_tensors(ConversionPlan& plan, const std::vector<ExpectedTensor>& expected,
                 const TextEncoderSizes& sizes, bool tied_embeddings,
                 const ConvertOptions& options) {
    const Checkpoint& checkpoint = *plan.checkpoint;
    Fallbacks fallbacks;
    std::vector<size_t> open;
    for (const ExpectedTensor& tensor : expected) {
        const ModelTensor& source = checkpoint.get(tensor.name);
        require_readable(checkpoint, source);
        const TypeChoice choice = choose_type(options.types, checkpoint.part(), tensor,
                                              source.type(), sizes, tied_embeddings);
        if (choice.wanted) {
            fallbacks.add(tensor, choice);
        }
        if (choice.open && !candidate_types(tensor.shape.ne[0]).empty()) {
            open.push_back(plan.tensors.size());
        }
        plan.tensors.push_back({&source, {tensor.name, choice.type, tensor.shape}});
    }
    fallbacks.report(plan.warnings);
    if (options.types.by_error()) {
        choose_by_error(plan, open, options);
    }
    for (const PlannedTensor& tensor : plan.tensors) {
        check_requantize(checkpoint, *tensor.source, tensor.target.type,
                         plan.adapters.changes(tensor.target.name), options.allow_requantize);
    }
}

void plan_transformer(ConversionPlan& plan, const ConvertOptions& options) {
    const Checkpoint& checkpoint = *plan.checkpoint;
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    const VariantChoice choice = decide_variant(checkpoint, sizes, options.variant);
    MetadataResult result = transformer_metadata(checkpoint, sizes, choice.variant,
                                                 options.defaults, *options.types.file_type);
    plan.metadata = std::move(result.metadata);
    plan.name = result.name;
    plan.summary =
        concat(result.name, " transformer, ", sizes.n_double, " double and ", sizes.n_single,
               " single blocks, variant ", to_string(choice.variant), " (", choice.reason, ")");
    plan.text_width = sizes.text_width;
    plan.latent_channels = sizes.channels;
}

void plan_vae(ConversionPlan& plan, const ConvertOptions& options) {
    const VaeSizes sizes = read_vae_sizes(*plan.checkpoint);
    MetadataResult result = autoencoder_metadata(*plan.checkpoint, *options.types.file_type);
    plan.metadata = std::move(result.metadata);
    plan.name = result.name;
    plan.summary = concat(result.name, ", decoder width ", sizes.decoder_widths[0]);
    plan.latent_channels = 4 * sizes.latent_channels;
}

void plan_tiny_autoencoder(ConversionPlan& plan, const ConvertOptions& options) {
    const TinyAutoencoderSizes sizes = read_tiny_autoencoder_sizes(*plan.checkpoint);
    MetadataResult result = autoencoder_metadata(*plan.checkpoint, *options.types.file_type);
    plan.metadata = std::move(result.metadata);
    plan.name = result.name;
    plan.summary = concat(result.name, sizes.has_encoder ? ", encoder and decoder" : ", decoder",
                          " of width ", sizes.width);
    plan.latent_channels = 4 * sizes.latent_channels;
}

void plan_text_encoder(ConversionPlan& plan, const TextEncoderSizes& sizes,
                       std::vector<ExpectedTensor>& expected, const ConvertOptions& options) {
    const Checkpoint& checkpoint = *plan.checkpoint;
    const TextUse use = decide_text_use(checkpoint, sizes, options.text_encoder);
    MetadataResult result = text_encoder_metadata(checkpoint, sizes, use, options.text_encoder,
                                                  *options.types.file_type);
    const int64_t kept = layers_kept(sizes, use, options.text_encoder.trim);
    if (options.text_encoder.trim) {
        std::erase_if(expected, [&](const ExpectedTensor& tensor) {
            return is_trimmed_away(tensor.name, kept);
        });
    }
    plan.metadata = std::move(result.metadata);
    plan.warnings = std::move(result.warnings);
    plan.name = result.name;
    plan.summary = concat(result.name, " text encoder, ", kept, " of ", sizes.n_layers, " layers");
    plan.text_width = static_cast<int64_t>(use.layers.size()) * sizes.hidden;
}

// Matches the adapters with the network and notes those that change it. A source into which others
// were merged keeps its notes.
void plan_adapters(ConversionPlan& plan, const std::vector<ExpectedTensor>& network,
                   const ConvertOptions& options) {
    plan.adapters = AdapterSet(options.adapters, plan.checkpoint->part(), network, plan.name);
    if (plan.adapters.empty()) {
        return;
    }
    std::vector<std::string> notes;
    if (const std::vector<std::string>* earlier = plan.metadata.get_strings(kAdaptersKey)) {
        notes = *earlier;
    }
    for (size_t i = 0; i < options.adapters.size(); ++i) {
        const size_t n_used = plan.adapters.n_used()[i];
        if (n_used > 0) {
            notes.push_back(to_string(options.adapters[i]));
            plan.summary += concat("; with ", n_used, " modules of ", notes.back());
        }
    }
    plan.metadata.set(kAdaptersKey, notes);
}

// A training counter of PyTorch's batch norm, which is never used.
constexpr std::string_view kIgnored = "bn.num_batches_tracked";

}  // namespace

std::vector<GgufTensor> ConversionPlan::targets() const {
    std::vector<GgufTensor> result;
    for (const PlannedTensor& tensor : tensors) {
        result.push_back(tensor.target);
    }
    return result;
}

uint64_t ConversionPlan::output_bytes() const {
    return lay_out_gguf(metadata, targets()).file_bytes;
}

ConversionPlan make_plan(const Checkpoint& checkpoint, const std::filesystem::path& output,
                         const ConvertOptions& options) {
    ConversionPlan plan;
    plan.checkpoint = &checkpoint;
    plan.output = output;
    const std::vector<ExpectedTensor> network = check_inventory(checkpoint);
    std::vector<ExpectedTensor> expected = network;  // less what is trimmed away
    std::vector<std::string> unexpected = unexpected_tensors(checkpoint, expected);
    std::erase(unexpected, kIgnored);

    TextEncoderSizes sizes;
    const bool tied_embeddings = checkpoint.find("output.weight") == nullptr;
    switch (checkpoint.part()) {
        case Part::transformer:
            plan_transformer(plan, options);
            break;
        case Part::text_encoder:
            sizes = read_text_encoder_sizes(checkpoint);
            plan_text_encoder(plan, sizes, expected, options);
            break;
        case Part::vae:
            plan_vae(plan, options);
            break;
        case Part::tiny_autoencoder:
            plan_tiny_autoencoder(plan, options);
            break;
    }
    plan_adapters(plan, network, options);
    add_tensors(plan, expected, sizes, tied_embeddings, options);
    if (!unexpected.empty()) {
        plan.warnings.push_back(concat(unexpected.size(),
                                       " tensors that FLUX.2 does not have are "
                                       "left out, ",
                                       unexpected.front(), " among them"));
    }
    plan.summary += concat("; ", to_string(checkpoint.naming()), ", ", types_of(checkpoint), ", ",
                           checkpoint.n_parameters(), " parameters");
    return plan;
}

void check_adapters_used(const std::vector<ConversionPlan>& plans,
                         const std::vector<UsedAdapter>& adapters) {
    for (size_t i = 0; i < adapters.size(); ++i) {
        const bool used = std::any_of(plans.begin(), plans.end(), [&](const ConversionPlan& plan) {
            return plan.adapters.n_used()[i] > 0;
        });
        const AdapterFile& file = *adapters[i].file;
        check(used || adapters[i].use.strength == 0, ErrorKind::bad_file, file.file(),
              ": changes a ", flux2::to_string(file.modules().front().part),
              ", which is not among the inputs; give that too");
    }
}

void check_overrides_match(const std::vector<ConversionPlan>& plans, const TypeRequest& types) {
    for (const TypeOverride& override : types.overrides) {
        const bool used = std::any_of(plans.begin(), plans.end(), [&](const ConversionPlan& plan) {
            return std::any_of(plan.tensors.begin(), plan.tensors.end(),
                               [&](const PlannedTensor& tensor) {
                                   return tensor.target.shape.n_dims >= 2 &&
                                          std::regex_search(tensor.target.name, override.pattern);
                               });
        });
        check(used, ErrorKind::bad_argument, "--tensor-type ", override.text,
              " matches the name of no matrix; --dry-run lists the names (norms and biases are "
              "always F32)");
    }
}

void check_parts_fit(const std::vector<ConversionPlan>& plans) {
    const auto fit_of = [](const ConversionPlan& plan) {
        return PartFit{plan.checkpoint->part(), plan.checkpoint->file(), plan.text_width,
                       plan.latent_channels};
    };
    for (size_t i = 0; i < plans.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            const PartFit first = fit_of(plans[j]), second = fit_of(plans[i]);
            check(first.part != second.part, ErrorKind::bad_file, second.file, " and ", first.file,
                  " are both a ", to_string(first.part), "; convert them one by one");
            const auto reason = misfit(first, second);
            check(!reason, ErrorKind::bad_file, reason.value_or(""));
        }
    }
}

void write_plan(const ConversionPlan& plan, int n_threads, const std::atomic<bool>& cancel,
                const ProgressCallback& progress) {
    const std::vector<MappedFile>& files = plan.checkpoint->source().files();
    std::atomic<bool> stop_hashing = false;
    GgufWriter writer(plan.output, plan.metadata, plan.targets());
    // Runs concurrently with the conversion: both read the same pages.
    auto hash = std::async(std::launch::async | std::launch::deferred,
                           [&] { return sha256(files, stop_hashing); });
    try {
        write_tensors(writer, plan.tensors,
                      {.n_threads = n_threads,
                       .cancel = &cancel,
                       .source_file = plan.checkpoint->file(),
                       .adapters = &plan.adapters,
                       .progress = progress});
    } catch (...) {
        stop_hashing = true;
        throw;
    }
    Metadata metadata = plan.metadata;
    metadata.set(kSourceHashKey, hash.get());
    writer.finish(metadata);
}

std::vector<TypeError> verify_plan(const ConversionPlan& plan, int n_threads,
                                   const std::atomic<bool>& cancel,
                                   const ProgressCallback& progress) {
    return verify_tensors(plan.output, plan.tensors,
                          {.n_threads = n_threads,
                           .cancel = &cancel,
                           .source_file = plan.checkpoint->file(),
                           .adapters = &plan.adapters,
                           .progress = progress});
}

}  // namespace flux2::convert
