#include "networks/tensor_list.hpp"

#include <cstddef>
#include <utility>

namespace flux2 {
namespace {

// Collects tensors.
class List {
  public:
    void matrix(const std::string& name, int64_t in, int64_t out, bool required = true) {
        tensors_.push_back({name, {in, out}, required});
    }
    void vector(const std::string& name, int64_t n, bool required = true) {
        tensors_.push_back({name, {n}, required});
    }
    void conv(const std::string& name, int64_t in, int64_t out, int64_t size) {
        filter(name, in, out, size);
        vector(name + ".bias", out);
    }
    // A convolution without a bias.
    void filter(const std::string& name, int64_t in, int64_t out, int64_t size) {
        tensors_.push_back({name + ".weight", {size, size, in, out}});
    }
    void norm(const std::string& name, int64_t n) {
        vector(name + ".weight", n);
        vector(name + ".bias", n);
    }
    std::vector<ExpectedTensor> take() { return std::move(tensors_); }

  private:
    std::vector<ExpectedTensor> tensors_;
};

void add_resnet(List& list, const std::string& name, int64_t in, int64_t out) {
    list.norm(name + ".norm1", in);
    list.conv(name + ".conv1", in, out, 3);
    list.norm(name + ".norm2", out);
    list.conv(name + ".conv2", out, out, 3);
    if (in != out) {
        list.conv(name + ".nin_shortcut", in, out, 1);
    }
}

void add_mid(List& list, const std::string& name, int64_t channels) {
    add_resnet(list, name + ".block_1", channels, channels);
    list.norm(name + ".attn_1.norm", channels);
    for (const char* layer : {"q", "k", "v", "proj_out"}) {
        list.conv(name + ".attn_1." + layer, channels, channels, 1);
    }
    add_resnet(list, name + ".block_2", channels, channels);
}

void add_encoder(List& list, const VaeSizes& sizes) {
    const auto& widths = sizes.encoder_widths;
    int64_t channels = widths[0];
    list.conv("encoder.conv_in", 3, channels, 3);
    for (size_t level = 0; level < widths.size(); ++level) {
        const std::string down = "encoder.down." + std::to_string(level);
        for (const char* block : {".block.0", ".block.1"}) {
            add_resnet(list, down + block, channels, widths[level]);
            channels = widths[level];
        }
        if (level + 1 < widths.size()) {
            list.conv(down + ".downsample.conv", channels, channels, 3);
        }
    }
    add_mid(list, "encoder.mid", channels);
    list.norm("encoder.norm_out", channels);
    list.conv("encoder.conv_out", channels, 2 * sizes.latent_channels, 3);
    list.conv("encoder.quant_conv", 2 * sizes.latent_channels, 2 * sizes.latent_channels, 1);
}

void add_decoder(List& list, const VaeSizes& sizes) {
    const auto& widths = sizes.decoder_widths;
    int64_t channels = widths.back();
    list.conv("decoder.post_quant_conv", sizes.latent_channels, sizes.latent_channels, 1);
    list.conv("decoder.conv_in", sizes.latent_channels, channels, 3);
    add_mid(list, "decoder.mid", channels);
    for (size_t level = widths.size(); level-- > 0;) {
        const std::string up = "decoder.up." + std::to_string(level);
        for (const char* block : {".block.0", ".block.1", ".block.2"}) {
            add_resnet(list, up + block, channels, widths[level]);
            channels = widths[level];
        }
        if (level > 0) {
            list.conv(up + ".upsample.conv", channels, channels, 3);
        }
    }
    list.norm("decoder.norm_out", channels);
    list.conv("decoder.conv_out", channels, 3, 3);
}

void add_tiny_block(List& list, const TinyAutoencoderSizes& sizes, const std::string& block,
                    bool pools) {
    for (const char* conv : {".conv.0", ".conv.2", ".conv.4"}) {
        list.conv(block + conv, sizes.width, sizes.width, 3);
    }
    if (pools) {
        list.filter(block + ".pool.0", sizes.width, sizes.pool_width, 1);
        list.norm(block + ".pool.1", sizes.pool_width);
        list.filter(block + ".pool.3", sizes.pool_width, sizes.width, 1);
    }
}

void add_tiny_stages(List& list, const TinyAutoencoderSizes& sizes, const std::string& half,
                     const TinyStages& stages) {
    for (const TinyStage& stage : stages) {
        for (int i = 0; i < stage.n_blocks; ++i) {
            add_tiny_block(list, sizes, half + std::to_string(stage.first_block + i), stage.pools);
        }
        if (stage.resample != 0) {
            list.filter(half + std::to_string(stage.resample), sizes.width, sizes.width, 3);
        }
    }
}

}  // namespace

std::vector<ExpectedTensor> tensor_list(const TransformerSizes& sizes) {
    const int64_t hidden = sizes.hidden;
    List list;
    list.matrix("img_in.weight", sizes.channels, hidden);
    list.matrix("txt_in.weight", sizes.text_width, hidden);
    list.matrix("time_in.in_layer.weight", kTimeChannels, hidden);
    list.matrix("time_in.out_layer.weight", hidden, hidden);
    if (sizes.guidance) {
        list.matrix("guidance_in.in_layer.weight", kTimeChannels, hidden);
        list.matrix("guidance_in.out_layer.weight", hidden, hidden);
    }
    list.matrix("double_stream_modulation_img.lin.weight", hidden, 6 * hidden);
    list.matrix("double_stream_modulation_txt.lin.weight", hidden, 6 * hidden);
    list.matrix("single_stream_modulation.lin.weight", hidden, 3 * hidden);
    for (int64_t i = 0; i < sizes.n_double; ++i) {
        for (const char* stream : {"img", "txt"}) {
            const std::string p = "double_blocks." + std::to_string(i) + "." + stream;
            list.matrix(p + "_attn.qkv.weight", hidden, 3 * hidden);
            list.vector(p + "_attn.norm.query_norm.scale", sizes.head_dim);
            list.vector(p + "_attn.norm.key_norm.scale", sizes.head_dim);
            list.matrix(p + "_attn.proj.weight", hidden, hidden);
            list.matrix(p + "_mlp.0.weight", hidden, 2 * sizes.mlp);
            list.matrix(p + "_mlp.2.weight", sizes.mlp, hidden);
        }
    }
    for (int64_t i = 0; i < sizes.n_single; ++i) {
        const std::string p = "single_blocks." + std::to_string(i);
        list.matrix(p + ".linear1.weight", hidden, 3 * hidden + 2 * sizes.mlp);
        list.matrix(p + ".linear2.weight", hidden + sizes.mlp, hidden);
        list.vector(p + ".norm.query_norm.scale", sizes.head_dim);
        list.vector(p + ".norm.key_norm.scale", sizes.head_dim);
    }
    list.matrix("final_layer.adaLN_modulation.1.weight", hidden, 2 * hidden);
    list.matrix("final_layer.linear.weight", hidden, sizes.channels);
    return list.take();
}

std::vector<ExpectedTensor> tensor_list(const TextEncoderSizes& sizes) {
    const int64_t hidden = sizes.hidden;
    const int64_t q = sizes.n_head * sizes.head_dim;
    const int64_t kv = sizes.n_head_kv * sizes.head_dim;
    List list;
    list.matrix("token_embd.weight", hidden, sizes.vocabulary);
    for (int64_t i = 0; i < sizes.n_layers; ++i) {
        const std::string p = "blk." + std::to_string(i);
        list.vector(p + ".attn_norm.weight", hidden);
        list.matrix(p + ".attn_q.weight", hidden, q);
        list.matrix(p + ".attn_k.weight", hidden, kv);
        list.matrix(p + ".attn_v.weight", hidden, kv);
        if (sizes.family == TextFamily::qwen3) {
            list.vector(p + ".attn_q_norm.weight", sizes.head_dim);
            list.vector(p + ".attn_k_norm.weight", sizes.head_dim);
        }
        list.matrix(p + ".attn_output.weight", q, hidden);
        list.vector(p + ".ffn_norm.weight", hidden);
        list.matrix(p + ".ffn_gate.weight", hidden, sizes.ffn);
        list.matrix(p + ".ffn_up.weight", hidden, sizes.ffn);
        list.matrix(p + ".ffn_down.weight", sizes.ffn, hidden);
    }
    list.vector("output_norm.weight", hidden, /*required=*/false);
    list.matrix("output.weight", hidden, sizes.vocabulary, /*required=*/false);
    return list.take();
}

std::vector<ExpectedTensor> tensor_list(const VaeSizes& sizes) {
    List list;
    add_encoder(list, sizes);
    add_decoder(list, sizes);
    // Of the latent after 2x2 pixels became channels.
    list.vector("bn.running_mean", 4 * sizes.latent_channels);
    list.vector("bn.running_var", 4 * sizes.latent_channels);
    return list.take();
}

std::vector<ExpectedTensor> tensor_list(const TinyAutoencoderSizes& sizes) {
    List list;
    if (sizes.has_encoder) {
        list.conv("encoder.0", 3, sizes.width, 3);
        add_tiny_stages(list, sizes, "encoder.", kTinyEncoderStages);
        list.conv("encoder.14", sizes.width, sizes.latent_channels, 3);
    }
    list.conv("decoder.1", sizes.latent_channels, sizes.width, 3);
    add_tiny_stages(list, sizes, "decoder.", kTinyDecoderStages);
    list.conv("decoder.19", sizes.width, 3, 3);
    return list.take();
}

}  // namespace flux2
