#include "checkpoints/variant.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/image_limits.hpp"
#include "base/letter_case.hpp"
#include "base/text_stream.hpp"
#include "formats/json_file.hpp"
#include "networks/family.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iomanip>
#include <utility>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr std::array kVariantNames = {std::pair{Variant::klein, "klein"},
                                      std::pair{Variant::base, "base"},
                                      std::pair{Variant::kv, "kv"}, std::pair{Variant::dev, "dev"}};

std::optional<Variant> find_variant(const std::string& name) {
    for (const auto& [variant, known] : kVariantNames) {
        if (name == known) {
            return variant;
        }
    }
    return std::nullopt;
}

// The model_index.json of the diffusers folder the file lies in, directly or one level down.
std::optional<VariantChoice> from_model_index(const fs::path& path) {
    const fs::path folder = is_folder(path) ? path : path.parent_path();
    for (const fs::path& file : {folder / "model_index.json", folder / ".." / "model_index.json"}) {
        const auto index = read_json_if_present(file);
        if (!index) {
            continue;
        }
        const std::string pipeline =
            get_json<std::string>(*index, "_class_name", file).value_or("");
        if (pipeline == "Flux2KleinKVPipeline") {
            return VariantChoice{Variant::kv, "model_index.json names " + pipeline};
        }
        if (const auto distilled = get_json<bool>(*index, "is_distilled", file)) {
            return VariantChoice{
                *distilled ? Variant::klein : Variant::base,
                concat("model_index.json says is_distilled is ", *distilled ? "true" : "false")};
        }
    }
    return std::nullopt;
}

std::optional<VariantChoice> from_names(const fs::path& path) {
    const fs::path absolute = full_path(path);
    const std::array<std::pair<std::string, const char*>, 2> names = {
        std::pair{absolute.filename().string(), "file"},
        std::pair{absolute.parent_path().filename().string(), "folder"}};
    for (const auto& [name, kind] : names) {
        for (const auto& [word, variant] :
             {std::pair{"kv", Variant::kv}, {"base", Variant::base}}) {
            if (contains_word(name, word)) {
                return VariantChoice{variant, concat("the ", kind, " name contains '", word, "'")};
            }
        }
    }
    return std::nullopt;
}

std::string short_count(int64_t n) {
    TextStream text;
    const bool billions = n >= 1'000'000'000;
    text << std::fixed << std::setprecision(1) << static_cast<double>(n) / (billions ? 1e9 : 1e6)
         << (billions ? "B" : "M");
    return text.str();
}

std::string size_name(const TransformerSizes& sizes) {
    if (sizes.hidden == 3072 && sizes.n_double == 5 && sizes.n_single == 20) {
        return "4B";
    }
    if (sizes.hidden == 4096 && sizes.n_double == 8 && sizes.n_single == 24) {
        return "9B";
    }
    int64_t n = 0;
    for (const ExpectedTensor& tensor : tensor_list(sizes)) {
        n += tensor.shape.elements();
    }
    return short_count(n);
}

}  // namespace

const char* to_string(Variant variant) {
    const auto* found = std::find_if(kVariantNames.begin(), kVariantNames.end(),
                                     [&](const auto& entry) { return entry.first == variant; });
    return found->second;
}

Variant parse_variant(const std::string& name) {
    const auto variant = find_variant(name);
    check(variant.has_value(), ErrorKind::bad_argument, "unknown variant '", name,
          "'; choose klein, base, kv or dev");
    return *variant;
}

bool contains_word(const std::string& name, const std::string& word) {
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    const std::string lower = to_lower(name);
    for (size_t at = lower.find(word); at != std::string::npos; at = lower.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !is_letter(lower[at - 1])) &&
            (end == lower.size() || !is_letter(lower[end]))) {
            return true;
        }
    }
    return false;
}

VariantChoice decide_variant(const Checkpoint& checkpoint, const TransformerSizes& sizes,
                             std::optional<Variant> option) {
    check(!option || (*option == Variant::dev) == sizes.guidance, ErrorKind::bad_argument,
          checkpoint.file(),
          sizes.guidance ? " has a guidance input, so it is dev"
                         : " has no guidance input, so it is not dev",
          "; leave out ", Setting::variant, " or choose another");
    if (option) {
        return {*option, concat("given by ", Setting::variant)};
    }
    if (sizes.guidance) {
        return {Variant::dev, "the transformer has a guidance input"};
    }
    if (const auto key = checkpoint.source().metadata().get_string("flux2.variant")) {
        const auto variant = find_variant(*key);
        check(variant.has_value(), ErrorKind::bad_file, checkpoint.file(),
              ": its key flux2.variant is '", *key,
              "', where klein, base, kv or dev is expected; convert it again");
        return {*variant, "the file's key flux2.variant"};
    }
    const fs::path& path = checkpoint.source().path();
    if (auto choice = from_model_index(path)) {
        return *choice;
    }
    if (auto choice = from_names(path)) {
        return *choice;
    }
    return {Variant::klein,
            concat("nothing says otherwise; ", Setting::variant, " base or kv overrides")};
}

SamplingDefaults sampling_defaults(Variant variant) {
    switch (variant) {
        case Variant::klein:
        case Variant::kv:
            return {.distilled = true, .steps = 4, .guidance = 1.0f};
        case Variant::base:
        case Variant::dev:
            return {.distilled = false, .steps = 50, .guidance = 4.0f};
    }
    fail(ErrorKind::internal, "unknown variant");
}

SamplingDefaults sampling_defaults(const Checkpoint& checkpoint, Variant variant) {
    const Metadata& keys = checkpoint.source().metadata();
    SamplingDefaults defaults = sampling_defaults(variant);
    const int64_t width = keys.get_int("flux2.default_width").value_or(defaults.width);
    const int64_t height = keys.get_int("flux2.default_height").value_or(defaults.height);
    for (const int64_t side : {width, height}) {
        check(is_image_side(side), ErrorKind::bad_file, checkpoint.file(),
              ": says its pictures are ", width, "x", height,
              ", which makes no sense; convert it again");
    }
    defaults.width = static_cast<int>(width);
    defaults.height = static_cast<int>(height);
    if (keys.get_string("flux2.variant").value_or(to_string(variant)) != to_string(variant)) {
        return defaults;
    }
    const int64_t steps = keys.get_int("flux2.default_steps").value_or(defaults.steps);
    const double guidance = keys.get_float("flux2.default_guidance").value_or(defaults.guidance);
    check(steps >= 1 && steps <= 1000 && guidance >= 0 && guidance <= 100, ErrorKind::bad_file,
          checkpoint.file(), ": says its defaults are ", steps, " steps and guidance ", guidance,
          ", which make no sense; convert it again");
    defaults.steps = static_cast<int>(steps);
    defaults.guidance = static_cast<float>(guidance);
    return defaults;
}

std::string display_name(Variant variant, const TransformerSizes& sizes) {
    switch (variant) {
        case Variant::klein:
            return "FLUX.2 klein " + size_name(sizes);
        case Variant::base:
            return "FLUX.2 klein base " + size_name(sizes);
        case Variant::kv:
            return "FLUX.2 klein KV " + size_name(sizes);
        case Variant::dev:
            return "FLUX.2 dev";
    }
    fail(ErrorKind::internal, "unknown variant");
}

std::string display_name(const TextEncoderSizes& sizes) {
    const Family* family = find_family(sizes.family, sizes.hidden);
    const bool mistral = sizes.family == TextFamily::mistral;
    if (family != nullptr && (!mistral || sizes.ffn == family->text_ffn)) {
        return family->text_name;
    }
    return concat(mistral ? "Mistral" : "Qwen3", ", hidden size ", sizes.hidden);
}

}  // namespace flux2
