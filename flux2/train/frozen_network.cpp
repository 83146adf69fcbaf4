#include "train/frozen_network.hpp"

#include "base/check.hpp"
#include "compute/operands.hpp"
#include "networks/tensor_list.hpp"

namespace flux2 {
namespace {

WeightOptions plain(WeightOptions options) {
    options.repack = false;
    return options;
}

}  // namespace

FrozenNetwork::FrozenNetwork(const Backend& backend, const Checkpoint& checkpoint,
                             const TransformerSizes& sizes, const WeightOptions& options)
    : weights_(backend, checkpoint, tensor_list(sizes), plain(options)) {
    check(sizes.head_dim % (2 * Rope::kMaxAxes) == 0, ErrorKind::bad_file, checkpoint.file(),
          ": head size ", sizes.head_dim, " cannot be shared by four position axes");
    img_in = declare("img_in");
    txt_in = declare("txt_in");
    time_in = {declare("time_in.in_layer"), declare("time_in.out_layer")};
    if (sizes.guidance) {
        guidance_in = {declare("guidance_in.in_layer"), declare("guidance_in.out_layer")};
    }
    mod_img = declare("double_stream_modulation_img.lin");
    mod_txt = declare("double_stream_modulation_txt.lin");
    mod_single = declare("single_stream_modulation.lin");
    for (int64_t i = 0; i < sizes.n_double; ++i) {
        const std::string p = "double_blocks." + std::to_string(i);
        weights_.begin_block();
        double_blocks.push_back({declare_stream(p + ".img"), declare_stream(p + ".txt")});
    }
    for (int64_t i = 0; i < sizes.n_single; ++i) {
        const std::string p = "single_blocks." + std::to_string(i);
        weights_.begin_block();
        single_blocks.push_back({.linear1 = declare(p + ".linear1"),
                                 .linear2 = declare(p + ".linear2"),
                                 .q_norm = weights_.vector(p + ".norm.query_norm.scale"),
                                 .k_norm = weights_.vector(p + ".norm.key_norm.scale")});
    }
    weights_.end_blocks();
    final_mod = declare("final_layer.adaLN_modulation.1");
    final_linear = declare("final_layer.linear");
    weights_.load();
}

ggml_tensor* FrozenNetwork::declare(const std::string& name) {
    return matrices_[name] = weights_.matrix(name + ".weight");
}

FrozenStream FrozenNetwork::declare_stream(const std::string& p) {
    return {.qkv = declare(p + "_attn.qkv"),
            .q_norm = weights_.vector(p + "_attn.norm.query_norm.scale"),
            .k_norm = weights_.vector(p + "_attn.norm.key_norm.scale"),
            .proj = declare(p + "_attn.proj"),
            .mlp_in = declare(p + "_mlp.0"),
            .mlp_out = declare(p + "_mlp.2")};
}

}  // namespace flux2
