#include "checkpoints/text_config.hpp"

#include "base/check.hpp"
#include "checkpoints/model_config.hpp"
#include "formats/json_file.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

template <typename T>
T first_of(const std::optional<T>& a, const std::optional<T>& b, const T& otherwise) {
    return a ? *a : b.value_or(otherwise);
}

// Newer configurations have rope_theta inside rope_parameters.
std::optional<double> config_theta(const nlohmann::json& config, const fs::path& file) {
    if (const auto plain = get_json<double>(config, "rope_theta", file)) {
        return plain;
    }
    const auto nested = get_json<nlohmann::json>(config, "rope_parameters", file);
    return nested && nested->is_object() ? get_json<double>(*nested, "rope_theta", file)
                                         : std::nullopt;
}

}  // namespace

TextConfig default_text_config(TextFamily family) {
    if (family == TextFamily::qwen3) {
        return {};
    }
    return {.family = family,
            .layers = {10, 20, 30},
            .rope_theta = 1e9,
            .eps = 1e-5,
            .context_length = 131072};
}

TextConfig read_text_config(const Checkpoint& checkpoint) {
    const Metadata& keys = checkpoint.source().metadata();
    const nlohmann::json config = read_model_config(checkpoint.source());
    const std::string architecture = architecture_of(checkpoint.source());
    const fs::path where = checkpoint.file() + " (its configuration)";
    const nlohmann::json own =
        get_json<nlohmann::json>(config, "flux2", where).value_or(nlohmann::json::object());
    TextConfig text = default_text_config(text_family(checkpoint));
    text.layers = first_of(keys.get_ints("flux2.text_layers"),
                           get_json<std::vector<int64_t>>(own, "layers", where), text.layers);
    text.text_length = first_of(keys.get_int("flux2.text_length"),
                                get_json<int64_t>(own, "text_length", where), text.text_length);
    text.rope_theta = first_of(keys.get_float(architecture + ".rope.freq_base"),
                               config_theta(config, where), text.rope_theta);
    text.eps = first_of(keys.get_float(architecture + ".attention.layer_norm_rms_epsilon"),
                        get_json<double>(config, "rms_norm_eps", where), text.eps);
    text.context_length =
        first_of(keys.get_int(architecture + ".context_length"),
                 get_json<int64_t>(config, "max_position_embeddings", where), text.context_length);
    check(text.rope_theta > 1 && text.rope_theta <= kMaxRopeTheta, ErrorKind::bad_file,
          where.string(), ": RoPE theta is ", text.rope_theta,
          ", where a finite number above 1 is expected");
    check(text.eps > 0 && text.eps < 1, ErrorKind::bad_file, where.string(),
          ": the epsilon of its norms is ", text.eps,
          ", where a number between 0 and 1 is expected");
    check(!text.layers.empty(), ErrorKind::bad_file, where.string(),
          ": names no layers whose outputs are used; convert it again");
    return text;
}

}  // namespace flux2
