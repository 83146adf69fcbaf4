#include "pipeline/model_files.hpp"

#include "base/check.hpp"
#include "checkpoints/fit.hpp"
#include "checkpoints/inventory.hpp"
#include "checkpoints/text_config.hpp"
#include "networks/family.hpp"
#include "pipeline/prompt.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

// "Q8_0 x 80, BF16 x 12": the matrices by what `name` says of each, most frequent first.
std::string count_matrices(const Checkpoint& checkpoint,
                           const std::vector<ExpectedTensor>& inventory,
                           const std::function<std::string(const ModelTensor&)>& name) {
    std::map<std::string, int> counts;
    for (const ExpectedTensor& tensor : inventory) {
        if (tensor.shape.rows() > 1) {
            ++counts[name(checkpoint.get(tensor.name))];
        }
    }
    std::vector<std::pair<std::string, int>> by_count(counts.begin(), counts.end());
    std::stable_sort(by_count.begin(), by_count.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    for (const auto& [what, n] : by_count) {
        text += concat(text.empty() ? "" : ", ", what, " x ", n);
    }
    return text;
}

std::string type_of(const ModelTensor& tensor) {
    return type_name(tensor.type());
}

// How a matrix is stored, in words.
std::string scheme_of(const ModelTensor& tensor) {
    if (tensor.pieces.front().scaled != nullptr) {
        return tensor.pieces.front().scaled->scheme();
    }
    switch (tensor.type()) {
        case TensorType::f8_e4m3:
            return "FP8 (E4M3) cast without scales";
        case TensorType::f8_e5m2:
            return "FP8 (E5M2) cast without scales";
        default:
            return is_quantized(tensor.type()) ? "quantised in ggml's blocks" : "unquantised";
    }
}

// The size of the file, or of this part in a file with several.
uint64_t size_of(const Checkpoint& checkpoint) {
    uint64_t bytes = 0;
    if (checkpoint.parts_of_file().size() == 1) {
        for (const MappedFile& file : checkpoint.source().files()) {
            bytes += file.bytes().size();
        }
        return bytes;
    }
    for (const ModelTensor& tensor : checkpoint.tensors()) {
        for (const Piece& piece : tensor.pieces) {
            bytes += piece.bytes.size();
        }
    }
    return bytes;
}

// "original" of "original names".
std::string short_name(Naming naming) {
    const std::string name = to_string(naming);
    return name.substr(0, name.rfind(' '));
}

void describe_transformer(FileInfo& info, const Checkpoint& checkpoint,
                          std::optional<Variant> option) {
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    const VariantChoice choice = decide_variant(checkpoint, sizes, option);
    const SamplingDefaults defaults = sampling_defaults(checkpoint, choice.variant);
    info.name = display_name(choice.variant, sizes);
    info.text_width = sizes.text_width;
    info.latent_channels = sizes.channels;
    info.variant = to_string(choice.variant);
    info.variant_reason = choice.reason;
    info.distilled = defaults.distilled;
    const Family* family = find_family(sizes.text_width);
    info.partners =
        concat("text encoder ",
               family != nullptr ? family->text_encoder : "with the same width of text features",
               " and the FLUX.2 autoencoder, ae.safetensors or flux2-vae.safetensors");
    info.default_steps = defaults.steps;
    info.default_width = defaults.width;
    info.default_height = defaults.height;
    info.default_guidance = defaults.guidance;
}

// A name in a file may contain anything; one that would break a line of output is not used.
bool is_presentable(const std::string& name) {
    constexpr size_t kMaxLength = 80;
    return !name.empty() && name.size() <= kMaxLength &&
           std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Notes on models whose shapes fit but whose weights may be wrong: other models with the same
// shapes are recognised by their names only, or are as wide as Mistral Small 3.
void note_matching_models(FileInfo& info, const TextEncoderSizes& sizes) {
    const bool qwen3 = sizes.family == TextFamily::qwen3;
    const std::vector<const char*> words =
        qwen3 ? std::vector{"2507", "thinking", "base", "vl", "embedding", "coder"}
              : std::vector{"base", "devstral", "magistral"};
    for (const char* word : words) {
        if (contains_word(info.path.filename().string(), word)) {
            info.notes.push_back(
                concat("its name says '", word, "': it runs, but FLUX.2 was trained with plain ",
                       qwen3 ? "Qwen3" : "Mistral Small 3.2", ", whose features differ"));
        }
    }
    const Family* mistral = find_family(TextFamily::mistral, sizes.hidden);
    if (mistral != nullptr && (qwen3 || sizes.ffn != mistral->text_ffn)) {
        info.notes.push_back(
            "it is as wide as Mistral Small 3 but another model: FLUX.2 dev was trained with "
            "Mistral Small 3.2, whose features differ");
    }
}

void describe_text_encoder(FileInfo& info, const Checkpoint& checkpoint) {
    const TextEncoderSizes sizes = read_text_encoder_sizes(checkpoint);
    const std::vector<int64_t> layers = read_text_config(checkpoint).layers;
    const bool rising =
        std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
    check(rising && layers.front() >= 1 && layers.back() <= sizes.n_layers, ErrorKind::bad_file,
          checkpoint.file(), ": has ", sizes.n_layers, " layers, but its ", layers.size(),
          " features should come from layers ", layers.front(), " to ", layers.back(),
          "; it is not made for FLUX.2");
    const auto own_name = checkpoint.source().metadata().get_string("general.name");
    info.name = own_name && is_presentable(*own_name) ? *own_name : display_name(sizes);
    info.text_width = static_cast<int64_t>(layers.size()) * sizes.hidden;
    const Family* family = find_family(info.text_width);
    info.partners =
        concat("transformers of ",
               family != nullptr ? family->transformer : "the same width of text features");
    if (!has_tokenizer(checkpoint)) {
        info.notes.push_back("no tokenizer in it or beside it, so it cannot read prompts: " +
                             tokenizer_advice(checkpoint));
    }
    note_matching_models(info, sizes);
}

void describe_vae(FileInfo& info, const VaeSizes& sizes) {
    info.name = "FLUX.2 autoencoder";
    info.partners = "every FLUX.2 transformer";
    info.latent_channels = 4 * sizes.latent_channels;
    if (sizes.decoder_widths != sizes.encoder_widths) {
        info.name += ", small decoder";
        info.notes.push_back(concat(
            "its decoder is ", sizes.decoder_widths.front(), " to ", sizes.decoder_widths.back(),
            " channels wide, its encoder ", sizes.encoder_widths.front(), " to ",
            sizes.encoder_widths.back(), ": pictures are decoded faster, with little loss"));
    }
}

void describe_tiny(FileInfo& info, const TinyAutoencoderSizes& sizes) {
    info.name = "TAEF2, the tiny autoencoder of FLUX.2";
    info.partners = concat("every FLUX.2 transformer, for previews and fast, rough pictures (",
                           Setting::taesd, ")");
    info.latent_channels = 4 * sizes.latent_channels;
    if (!sizes.has_encoder) {
        info.notes.push_back(
            concat("holds the decoder alone: pictures to edit or to start from need ", Setting::vae,
                   " FILE beside it"));
    }
}

}  // namespace

FileInfo describe(const Checkpoint& checkpoint, std::optional<Variant> option) {
    const std::vector<ExpectedTensor> inventory = check_inventory(checkpoint);
    FileInfo info;
    info.path = checkpoint.source().path();
    info.part = to_string(checkpoint.part());
    info.format = checkpoint.source().format() == FileFormat::gguf ? "GGUF" : "safetensors";
    info.naming = short_name(checkpoint.naming());
    info.types = count_matrices(checkpoint, inventory, type_of);
    info.scheme = count_matrices(checkpoint, inventory, scheme_of);
    for (const ExpectedTensor& tensor : inventory) {
        info.n_parameters += tensor.shape.elements();
    }
    info.size_bytes = size_of(checkpoint);
    switch (checkpoint.part()) {
        case Part::transformer:
            describe_transformer(info, checkpoint, option);
            break;
        case Part::text_encoder:
            describe_text_encoder(info, checkpoint);
            break;
        case Part::vae:
            describe_vae(info, read_vae_sizes(checkpoint));
            break;
        case Part::tiny_autoencoder:
            describe_tiny(info, read_tiny_autoencoder_sizes(checkpoint));
            break;
    }
    return info;
}

bool is(const FileInfo& info, Part part) {
    return info.part == to_string(part);
}

FileInfo inspect_file(const fs::path& path) {
    return describe(Checkpoint::open(path));
}

std::vector<FileInfo> inspect_parts(const fs::path& path) {
    std::vector<FileInfo> parts;
    for (const Checkpoint& checkpoint : Checkpoint::open_all(path)) {
        parts.push_back(describe(checkpoint));
    }
    return parts;
}

std::optional<std::string> misfit(const FileInfo& a, const FileInfo& b) {
    const auto fit_of = [](const FileInfo& info) {
        const auto* part = std::find_if(kAllParts.begin(), kAllParts.end(),
                                        [&](Part known) { return is(info, known); });
        check(part != kAllParts.end(), ErrorKind::bad_argument, info.path.string(),
              ": is described as '", info.part, "', which is no part of a model");
        return PartFit{*part, info.path.string(), info.text_width, info.latent_channels};
    };
    return misfit(fit_of(a), fit_of(b));
}

}  // namespace flux2
