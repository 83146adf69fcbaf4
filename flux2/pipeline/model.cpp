#include "pipeline/model.hpp"

#include "base/check.hpp"
#include "pipeline/model_files.hpp"

#include <algorithm>
#include <utility>

namespace flux2 {
namespace {

std::optional<Checkpoint> open_part(const std::filesystem::path& path, Part expected) {
    if (path.empty()) {
        return std::nullopt;
    }
    Checkpoint checkpoint = Checkpoint::open(path, expected);
    check(checkpoint.part() == expected, ErrorKind::bad_file, checkpoint.file(),
          ": is of the kind ", to_string(checkpoint.part()), ", but ", facts_of(expected).setting,
          " takes the ", to_string(expected));
    return checkpoint;
}

// A part that is not named may lie in the transformer's file.
void look_in_file(std::optional<Checkpoint>& checkpoint, Part part, const Checkpoint& transformer) {
    const std::vector<Part>& there = transformer.parts_of_file();
    if (!checkpoint && std::find(there.begin(), there.end(), part) != there.end()) {
        checkpoint = Checkpoint::open(transformer.source().path(), part);
    }
}

void check_fit(const FileInfo& transformer, const std::optional<Checkpoint>& part) {
    if (part) {
        const auto reason = misfit(transformer, describe(*part));
        check(!reason, ErrorKind::bad_file, reason.value_or(""));
    }
}

}  // namespace

Model open_model(const ModelFiles& files, const std::string& variant) {
    const auto wanted =
        variant.empty() ? std::nullopt : std::optional<Variant>(parse_variant(variant));
    auto transformer = open_part(files.transformer, Part::transformer);
    auto text_encoder = open_part(files.text_encoder, Part::text_encoder);
    auto vae = open_part(files.vae, Part::vae);
    auto tiny = open_part(files.taesd, Part::tiny_autoencoder);
    check(transformer.has_value(), ErrorKind::bad_file, "no transformer: add ",
          Setting::transformer, " FILE, or ", Setting::folder, " FOLDER with one in it");
    look_in_file(text_encoder, Part::text_encoder, *transformer);
    look_in_file(vae, Part::vae, *transformer);
    const FileInfo info = describe(*transformer, wanted);
    check_fit(info, text_encoder);
    check_fit(info, vae);
    check_fit(info, tiny);
    const bool tiny_decodes = tiny && !files.taesd_preview_only;
    check(vae || tiny_decodes, ErrorKind::bad_file,
          tiny ? concat(Setting::taesd, " is for previews only and there is ") : "",
          "no autoencoder: add ", Setting::vae,
          " FILE (ae.safetensors of FLUX.2, or a GGUF made from it)");
    const TransformerSizes sizes = read_transformer_sizes(*transformer);
    const VariantChoice choice = decide_variant(*transformer, sizes, wanted);
    const SamplingDefaults defaults = sampling_defaults(*transformer, choice.variant);
    const TextConfig text = text_encoder ? read_text_config(*text_encoder) : TextConfig();
    return {.transformer = std::move(*transformer),
            .vae = std::move(vae),
            .tiny = std::move(tiny),
            .tiny_decodes = tiny_decodes,
            .text_encoder = std::move(text_encoder),
            .sizes = sizes,
            .variant = choice.variant,
            .defaults = defaults,
            .text = text,
            .info = info};
}

}  // namespace flux2
