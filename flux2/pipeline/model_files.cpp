#include "pipeline/model_files.hpp"

#include "base/check.hpp"
#include "store/inventory.hpp"
#include "store/text_config.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

// "Q8_0 x 80, BF16 x 12": the matrices by type, most frequent first.
std::string matrix_types(const Checkpoint& checkpoint,
                         const std::vector<ExpectedTensor>& inventory) {
    std::map<std::string, int> counts;
    for (const ExpectedTensor& tensor : inventory) {
        if (tensor.shape.rows() > 1) {
            ++counts[type_name(checkpoint.get(tensor.name).type())];
        }
    }
    std::vector<std::pair<std::string, int>> by_count(counts.begin(), counts.end());
    std::stable_sort(by_count.begin(), by_count.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    for (const auto& [name, n] : by_count) {
        text += concat(text.empty() ? "" : ", ", name, " x ", n);
    }
    return text;
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
    info.default_steps = defaults.steps;
    info.default_width = defaults.width;
    info.default_height = defaults.height;
    info.default_guidance = defaults.guidance;
}

// A name from a file may be anything; one that would spoil a line is left alone.
bool is_presentable(const std::string& name) {
    constexpr size_t kMaxLength = 80;
    return !name.empty() && name.size() <= kMaxLength &&
           std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

void describe_text_encoder(FileInfo& info, const Checkpoint& checkpoint) {
    const Qwen3Sizes sizes = read_qwen3_sizes(checkpoint);
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
}

struct TextMatch {
    int64_t width;
    const char* advice;
};
constexpr std::array kTextMatches = {
    TextMatch{7680, "use Qwen3-4B, which belongs to klein 4B"},
    TextMatch{12288, "use Qwen3-8B, which belongs to klein 9B"},
    TextMatch{15360, "dev goes with Mistral Small 3.2, which this version does not run"},
};

std::string text_advice(int64_t width) {
    for (const TextMatch& match : kTextMatches) {
        if (match.width == width) {
            return match.advice;
        }
    }
    return "klein 4B goes with Qwen3-4B, klein 9B with Qwen3-8B";
}

}  // namespace

FileInfo describe(const Checkpoint& checkpoint, std::optional<Variant> option) {
    const std::vector<ExpectedTensor> inventory = check_inventory(checkpoint);
    FileInfo info;
    info.path = checkpoint.source().path();
    info.part = to_string(checkpoint.component());
    info.format = checkpoint.source().format() == FileFormat::gguf ? "GGUF" : "safetensors";
    info.naming = short_name(checkpoint.naming());
    info.types = matrix_types(checkpoint, inventory);
    for (const ExpectedTensor& tensor : inventory) {
        info.n_parameters += tensor.shape.elements();
    }
    for (const MappedFile& file : checkpoint.source().files()) {
        info.size_bytes += file.bytes().size();
    }
    switch (checkpoint.component()) {
        case Component::transformer:
            describe_transformer(info, checkpoint, option);
            break;
        case Component::text_encoder:
            describe_text_encoder(info, checkpoint);
            break;
        case Component::vae:
            info.name = "FLUX.2 autoencoder";
            info.latent_channels = 4 * read_vae_sizes(checkpoint).latent_channels;
            break;
    }
    return info;
}

bool is(const FileInfo& info, Component component) {
    return info.part == to_string(component);
}

FileInfo inspect_file(const fs::path& path) {
    return describe(Checkpoint::open(path));
}

std::optional<std::string> misfit(const FileInfo& a, const FileInfo& b) {
    if (is(b, Component::transformer) && !is(a, Component::transformer)) {
        return misfit(b, a);
    }
    if (!is(a, Component::transformer)) {
        return std::nullopt;
    }
    if (is(b, Component::text_encoder) && a.text_width != b.text_width) {
        return concat(a.path.string(), " takes text features ", a.text_width, " wide, ",
                      b.path.string(), " gives ", b.text_width, "; ", text_advice(a.text_width));
    }
    if (is(b, Component::vae) && a.latent_channels != b.latent_channels) {
        return concat(a.path.string(), " works on ", a.latent_channels, " latent channels, ",
                      b.path.string(), " makes ", b.latent_channels,
                      "; use the FLUX.2 autoencoder");
    }
    return std::nullopt;
}

}  // namespace flux2
