#include "adapters/adapter_model.hpp"

#include "base/check.hpp"
#include "networks/family.hpp"
#include "networks/tensor_list.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

namespace flux2 {
namespace {

constexpr const char* kUnknown = "unknown";

// The published transformers, named as in kFamilies.
struct KnownModel {
    const char* name;
    TransformerSizes sizes;
};

constexpr TransformerSizes published(int64_t hidden, int64_t text_width, int64_t n_double,
                                     int64_t n_single, bool guidance) {
    return {.hidden = hidden,
            .head_dim = 128,
            .mlp = 3 * hidden,
            .text_width = text_width,
            .channels = 128,
            .n_double = n_double,
            .n_single = n_single,
            .guidance = guidance};
}

constexpr std::array kModels = {
    KnownModel{"klein 4B", published(3072, 7680, 5, 20, false)},
    KnownModel{"klein 9B", published(4096, 12288, 8, 24, false)},
    KnownModel{"dev", published(6144, 15360, 8, 48, true)},
};

using Sizes = std::unordered_map<std::string, Shape>;

Sizes sizes_of(const TransformerSizes& transformer) {
    Sizes sizes;
    for (const ExpectedTensor& tensor : tensor_list(transformer)) {
        sizes.emplace(tensor.name, tensor.shape);
    }
    return sizes;
}

// FLUX.1's transformer with our names, where it has such modules.
Sizes flux1_sizes() {
    constexpr int64_t kHidden = 3072;
    TransformerSizes like = published(kHidden, 4096, 19, 38, true);
    like.channels = 64;
    like.mlp = 4 * kHidden;
    Sizes sizes = sizes_of(like);
    for (auto& [name, shape] : sizes) {
        // Its MLPs have no gate, so that their first matrix has half as many rows.
        if (name.ends_with("_mlp.0.weight")) {
            shape.ne[1] = 4 * kHidden;
        } else if (name.ends_with("linear1.weight")) {
            shape.ne[1] = 7 * kHidden;
        }
    }
    for (const char* name :
         {"double_stream_modulation_img.lin.weight", "double_stream_modulation_txt.lin.weight",
          "single_stream_modulation.lin.weight"}) {
        sizes.erase(name);
    }
    return sizes;
}

bool fits(const AdapterModule& module, const Sizes& sizes) {
    const auto found = sizes.find(module.tensor);
    if (found == sizes.end()) {
        return false;
    }
    const Shape& shape = found->second;
    if (shape.n_dims == 1) {
        return module.n_out == shape.ne[0];
    }
    return (module.n_in == 0 || module.n_in == shape.ne[0]) &&
           (module.n_out == 0 || module.n_out * module.n_shares == shape.ne[1]);
}

bool is_of_transformer(const AdapterModule& module) {
    return module.part == Part::transformer;
}

// All of the transformer.
bool all_fit(const std::vector<AdapterModule>& modules, const Sizes& sizes) {
    return std::all_of(modules.begin(), modules.end(), [&](const AdapterModule& module) {
        return !is_of_transformer(module) || fits(module, sizes);
    });
}

// The width of the text encoder's tokens, where a module shows it.
std::optional<int64_t> text_width(const AdapterModule& module) {
    for (const char* name :
         {"attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight", "ffn_up.weight"}) {
        if (module.tensor.ends_with(name) && module.n_in > 0) {
            return module.n_in;
        }
    }
    return std::nullopt;
}

std::string made_for_text(const std::vector<AdapterModule>& modules) {
    for (const Family& family : kFamilies) {
        const auto width = modules.empty() ? std::nullopt : text_width(modules.front());
        const bool same = std::all_of(modules.begin(), modules.end(), [&](const auto& module) {
            return text_width(module).value_or(family.text_hidden) == family.text_hidden;
        });
        if (width == family.text_hidden && same) {
            return concat("FLUX.2 ", family.transformer);
        }
    }
    return kUnknown;
}

// "double_blocks.0.img_mlp.0.weight" -> "img_mlp.0"
std::string name_in_block(const std::string& tensor) {
    const std::string name = tensor.substr(0, tensor.rfind('.'));
    const size_t block = name.find("_blocks.");
    return block == std::string::npos ? name : name.substr(name.find('.', block + 8) + 1);
}

struct Mark {
    std::string_view text;
    const char* model;
};

// In names with '_' for '.'; the first that is found counts.
constexpr std::array kMarks = {
    Mark{"input_blocks_", "Stable Diffusion or SDXL"},
    Mark{"output_blocks_", "Stable Diffusion or SDXL"},
    Mark{"down_blocks_", "Stable Diffusion or SDXL"},
    Mark{"up_blocks_", "Stable Diffusion or SDXL"},
    Mark{"mid_block_", "Stable Diffusion or SDXL"},
    Mark{"joint_blocks_", "Stable Diffusion 3"},
    Mark{"img_mod_1", "Qwen-Image"},
    Mark{"img_mlp_net_", "Qwen-Image"},
    Mark{"noise_refiner_", "Z-Image or Lumina"},
    Mark{"context_refiner_", "Z-Image or Lumina"},
    Mark{"_attention_to_", "Z-Image or Lumina"},
    Mark{"_attention_qkv", "Z-Image or Lumina"},
    Mark{"distilled_guidance_layer_", "Chroma"},
    Mark{"_cross_attn_", "a video model such as Wan"},
    Mark{"text_model_encoder_layers_", "a model with a CLIP text encoder"},
};

}  // namespace

std::string made_for(const std::vector<AdapterModule>& modules) {
    if (std::none_of(modules.begin(), modules.end(), is_of_transformer)) {
        return made_for_text(modules);
    }
    std::string found = kUnknown;
    for (const KnownModel& model : kModels) {
        if (!all_fit(modules, sizes_of(model.sizes))) {
            continue;
        }
        if (found != kUnknown) {
            return kUnknown;
        }
        found = concat("FLUX.2 ", model.name);
        if (&model == &kModels.front() && all_fit(modules, flux1_sizes())) {
            found += " (assumed: the same modules of FLUX.1 are as large)";
        }
    }
    return found;
}

std::string flux1_evidence(const std::vector<AdapterModule>& modules) {
    const Sizes flux1 = flux1_sizes();
    const Sizes klein = sizes_of(kModels.front().sizes);
    for (const AdapterModule& module : modules) {
        const auto in_klein = klein.find(module.tensor);
        if (!fits(module, flux1) || in_klein == klein.end() || fits(module, klein)) {
            continue;
        }
        const bool by_input = module.n_in != 0 && module.n_in != in_klein->second.ne[0];
        return concat("its ", name_in_block(module.tensor), by_input ? " takes " : " is ",
                      by_input ? module.n_in : module.n_out * module.n_shares,
                      by_input ? " inputs" : " wide", ", klein 4B's ",
                      in_klein->second.ne[by_input ? 0 : 1]);
    }
    // Modules that both have in the same size, but more of them. Norms tell nothing.
    const auto more = std::find_if(modules.begin(), modules.end(), [&](const auto& module) {
        return fits(module, flux1) && module.n_in != 1 && !klein.contains(module.tensor);
    });
    if (more == modules.end() || !all_fit(modules, flux1)) {
        return {};
    }
    return concat("it is for ", more->tensor, ", which klein 4B, the model of this width, lacks");
}

const char* other_model_of(std::string_view stem) {
    std::string name(stem);
    std::replace(name.begin(), name.end(), '.', '_');
    for (const Mark& mark : kMarks) {
        if (name.find(mark.text) != std::string::npos) {
            return mark.model;
        }
    }
    return nullptr;
}

}  // namespace flux2
