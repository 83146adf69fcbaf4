#include "adapters/adapter_alpha.hpp"

#include "base/check.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// `prefix` is that of the keys, `where` names the JSON in errors.
PeftConfig read_config(const json& object, const std::string& prefix, const fs::path& where) {
    PeftConfig config;
    config.alpha = get_json<double>(object, prefix + "lora_alpha", where);
    config.rank = get_json<double>(object, prefix + "r", where);
    config.rank_stabilised = get_json<bool>(object, prefix + "use_rslora", where).value_or(false);
    const auto patterns = [&](const char* name) {
        const json found = get_json<json>(object, prefix + name, where).value_or(json::object());
        check(found.is_object(), ErrorKind::bad_file, where.string(), ": ", prefix, name,
              " is not an object");
        return found;
    };
    const json alphas = patterns("alpha_pattern");
    for (const auto& [name, value] : alphas.items()) {
        config.alpha_pattern[name] = get_json<double>(alphas, name, where).value_or(0);
    }
    const json ranks = patterns("rank_pattern");
    for (const auto& [name, value] : ranks.items()) {
        config.rank_pattern[name] = get_json<double>(ranks, name, where).value_or(0);
    }
    return config;
}

// The value for a module: patterns are names of modules or what they end in, behind a dot.
std::optional<double> find_pattern(const std::map<std::string, double>& patterns,
                                   const std::string& stem) {
    for (const auto& [text, value] : patterns) {
        std::string pattern = text.substr(text.starts_with('^') ? 1 : 0);
        pattern.erase(std::remove(pattern.begin(), pattern.end(), '\\'), pattern.end());
        if (stem == pattern || stem.ends_with("." + pattern)) {
            return value;
        }
    }
    return std::nullopt;
}

std::optional<double> factor_by(const PeftConfig& config, const AdapterModule& module) {
    const auto pattern = find_pattern(config.alpha_pattern, module.stem);
    const double alpha = pattern.value_or(config.alpha.value_or(0));
    if (alpha == 0 || !std::isfinite(alpha)) {
        return std::nullopt;
    }
    const auto rank = static_cast<double>(module.rank);
    return alpha / (config.rank_stabilised ? std::sqrt(rank) : rank);
}

// A folder may have files beside the one that its configuration belongs to.
bool has_rank_of(const PeftConfig& config, const AdapterModule& module) {
    const auto pattern = find_pattern(config.rank_pattern, module.stem);
    return (pattern ? pattern : config.rank) == static_cast<double>(module.rank);
}

// llama.cpp's.
std::optional<double> read_gguf_alpha(const TensorSource& source) {
    if (source.format() != FileFormat::gguf) {
        return std::nullopt;
    }
    return source.metadata().get_float("adapter.lora.alpha");
}

std::map<Part, PeftConfig> read_metadata(const TensorSource& source) {
    constexpr const char* kKey = "lora_adapter_metadata";
    std::map<Part, PeftConfig> configs;
    if (const auto text = source.metadata().get_string(kKey)) {
        const fs::path where = concat(source.path().string(), ": metadata key ", kKey);
        const json object = parse_json(*text);
        check(object.is_object(), ErrorKind::bad_file, where.string(), " is no valid JSON object");
        configs[Part::transformer] = read_config(object, "transformer.", where);
        configs[Part::text_encoder] = read_config(object, "text_encoder.", where);
    }
    return configs;
}

// Of a LoRA; the configurations of other kinds have other keys.
std::optional<PeftConfig> read_folder_file(const TensorSource& source) {
    if (source.files().empty()) {
        return std::nullopt;
    }
    const fs::path path = source.files().front().path().parent_path() / "adapter_config.json";
    const auto object = read_json_if_present(path);
    if (!object || get_json<std::string>(*object, "peft_type", path).value_or("LORA") != "LORA") {
        return std::nullopt;
    }
    return read_config(*object, "", path);
}

double read_single(const std::string& file, const TensorInfo& tensor) {
    check(tensor.shape.elements() == 1 && converts_to_f32(tensor.type) &&
              block_elements(tensor.type) == 1,
          ErrorKind::bad_file, file, ": tensor ", tensor.name, " has the shape ",
          to_string(tensor.shape), " and the type ", type_name(tensor.type),
          ", a single number is expected");
    float value = 0;
    to_f32(tensor.type, tensor.bytes, {&value, 1});
    return static_cast<double>(value);
}

double read_finite(const std::string& file, const TensorInfo& tensor) {
    const double value = read_single(file, tensor);
    check(std::isfinite(value), ErrorKind::bad_file, file, ": tensor ", tensor.name, " is ", value,
          ", a finite number is expected; the file is broken");
    return value;
}

// 0 for none. Infinity is a limit that is never reached.
double read_constraint(const std::string& file, const TensorInfo& tensor) {
    const double limit = read_single(file, tensor);
    check(!std::isnan(limit), ErrorKind::bad_file, file, ": tensor ", tensor.name, " is ", limit,
          ", a number is expected; the file is broken");
    return std::isfinite(limit) ? std::max(limit, 0.0) : 0;
}

// Whether a factor of the formula comes from alpha. A LoKr of two whole matrices has none: trainers
// write 1e10 or infinity there.
bool has_factor(const AdapterModule& module) {
    switch (module.kind) {
        case AdapterKind::lora:
        case AdapterKind::loha:
        case AdapterKind::glora:
            return true;
        case AdapterKind::lokr:
            return module.rank > 0;
        default:
            return false;
    }
}

}  // namespace

AlphaRules::AlphaRules(const TensorSource& source)
    : file_(source.path().string()),
      gguf_alpha_(read_gguf_alpha(source)),
      metadata_(read_metadata(source)),
      folder_file_(read_folder_file(source)) {}

double AlphaRules::factor_by_configs(const AdapterModule& module) const {
    if (gguf_alpha_ && *gguf_alpha_ != 0) {
        check(std::isfinite(*gguf_alpha_), ErrorKind::bad_file, file_,
              ": metadata key adapter.lora.alpha is ", *gguf_alpha_,
              ", a finite number is expected; the file is broken");
        return *gguf_alpha_ / static_cast<double>(module.rank);
    }
    if (const auto found = metadata_.find(module.part); found != metadata_.end()) {
        if (const auto factor = factor_by(found->second, module)) {
            return *factor;
        }
    }
    if (folder_file_ && has_rank_of(*folder_file_, module)) {
        return factor_by(*folder_file_, module).value_or(1);
    }
    return 1;
}

void AlphaRules::apply(AdapterModule& module) const {
    const TensorInfo* alpha = module.find(AdapterRole::alpha);
    if (module.kind == AdapterKind::oft || module.kind == AdapterKind::boft) {
        module.constraint = alpha == nullptr ? 0 : read_constraint(file_, *alpha);
        return;
    }
    if (const TensorInfo* scale = module.find(AdapterRole::scale)) {
        module.factor = read_finite(file_, *scale);
        return;
    }
    if (!has_factor(module)) {
        return;
    }
    // Trainers take an alpha of 0 for none.
    const double own = alpha == nullptr ? 0 : read_finite(file_, *alpha);
    if (own != 0) {
        module.factor = own / static_cast<double>(module.rank);
    } else if (module.kind == AdapterKind::lora) {
        module.factor = factor_by_configs(module);
    }
}

}  // namespace flux2
