#include "checkpoints/inventory.hpp"

#include "base/check.hpp"
#include "checkpoints/model_config.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_set>

namespace flux2 {
namespace {

// The number in "blk.12.attn_q.weight" behind "blk."; nothing for names of another form.
std::optional<int64_t> block_number(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) {
        return std::nullopt;
    }
    const char* const end = name.data() + name.size();
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, number);
    const bool whole = error == std::errc() && number >= 0 && rest != end && *rest == '.';
    return whole ? std::optional(number) : std::nullopt;
}

// How many blocks the file should have: up to the last of which any tensor is there, and as many as
// its configuration says, so that the inventory misses whatever is not there. Never more than there
// are tensors: of so many blocks one is missing anyway.
int64_t count_blocks(const Checkpoint& checkpoint, std::string_view prefix,
                     std::optional<int64_t> configured) {
    int64_t n = std::max<int64_t>(1, configured.value_or(1));
    const auto n_tensors = static_cast<int64_t>(checkpoint.tensors().size());
    for (const ModelTensor& tensor : checkpoint.tensors()) {
        const int64_t number = block_number(tensor.name, prefix).value_or(0);
        n = std::max(n, std::min(number, n_tensors) + 1);
    }
    return std::min(n, n_tensors);
}

// config.json of a diffusers folder, which is known by the name of the weights in it; beside other
// files it may be that of another part.
nlohmann::json transformer_config(const Checkpoint& checkpoint) {
    const std::string name = checkpoint.source().path().filename().string();
    return name.starts_with("diffusion_pytorch_model") ? read_model_config(checkpoint.source())
                                                       : nlohmann::json::object();
}

bool has_tensor_under(const Checkpoint& checkpoint, std::string_view prefix) {
    const std::vector<ModelTensor>& tensors = checkpoint.tensors();
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const ModelTensor& tensor) { return tensor.name.starts_with(prefix); });
}

int64_t positive(const Checkpoint& checkpoint, std::string_view tensor, int64_t size) {
    check(size > 0, ErrorKind::bad_file, checkpoint.file(), ": tensor ", tensor,
          " is empty; the file is broken");
    return size;
}

int64_t width(const Checkpoint& checkpoint, std::string_view tensor) {
    return positive(checkpoint, tensor, checkpoint.get(tensor).shape.ne[0]);
}

int64_t height(const Checkpoint& checkpoint, std::string_view tensor) {
    return positive(checkpoint, tensor, checkpoint.get(tensor).shape.ne[1]);
}

// Collects expected tensors with less ink.
class List {
  public:
    void matrix(const std::string& name, int64_t in, int64_t out, bool required = true) {
        tensors_.push_back({name, {in, out}, required});
    }
    void vector(const std::string& name, int64_t n, bool required = true) {
        tensors_.push_back({name, {n}, required});
    }
    void conv(const std::string& name, int64_t in, int64_t out, int64_t kernel) {
        tensors_.push_back({name + ".weight", {kernel, kernel, in, out}});
        vector(name + ".bias", out);
    }
    void kernel(const std::string& name, int64_t in, int64_t out, int64_t size) {
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
    for (const char* part : {"q", "k", "v", "proj_out"}) {
        list.conv(name + ".attn_1." + part, channels, channels, 1);
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

// Layers [first, end) of a half of TAEF2, each a block.
void add_tiny_blocks(List& list, const TinyAutoencoderSizes& sizes, const std::string& half,
                     int first, int end, bool pools) {
    for (int layer = first; layer < end; ++layer) {
        const std::string block = half + std::to_string(layer);
        for (const char* conv : {".conv.0", ".conv.2", ".conv.4"}) {
            list.conv(block + conv, sizes.width, sizes.width, 3);
        }
        if (pools) {
            list.kernel(block + ".pool.0", sizes.width, sizes.pool_width, 1);
            list.norm(block + ".pool.1", sizes.pool_width);
            list.kernel(block + ".pool.3", sizes.pool_width, sizes.width, 1);
        }
    }
}

std::vector<ExpectedTensor> inventory_of(const Checkpoint& checkpoint) {
    switch (checkpoint.component()) {
        case Component::transformer:
            return inventory(read_transformer_sizes(checkpoint));
        case Component::text_encoder:
            return inventory(read_text_encoder_sizes(checkpoint));
        case Component::vae:
            return inventory(read_vae_sizes(checkpoint));
        case Component::tiny_autoencoder:
            return inventory(read_tiny_autoencoder_sizes(checkpoint));
    }
    fail(ErrorKind::internal, "unknown component");
}

}  // namespace

TransformerSizes read_transformer_sizes(const Checkpoint& checkpoint) {
    TransformerSizes sizes;
    sizes.channels = width(checkpoint, "img_in.weight");
    sizes.hidden = height(checkpoint, "img_in.weight");
    sizes.text_width = width(checkpoint, "txt_in.weight");
    sizes.head_dim = width(checkpoint, "double_blocks.0.img_attn.norm.query_norm.scale");
    sizes.mlp = width(checkpoint, "double_blocks.0.img_mlp.2.weight");
    const nlohmann::json config = transformer_config(checkpoint);
    const std::filesystem::path where = checkpoint.file() + " (its configuration)";
    sizes.n_double =
        count_blocks(checkpoint, "double_blocks.", get_json<int64_t>(config, "num_layers", where));
    sizes.n_single = count_blocks(checkpoint, "single_blocks.",
                                  get_json<int64_t>(config, "num_single_layers", where));
    sizes.guidance = checkpoint.find("guidance_in.in_layer.weight") != nullptr ||
                     checkpoint.find("guidance_in.out_layer.weight") != nullptr;
    const Metadata& keys = checkpoint.source().metadata();
    sizes.rope_theta = keys.get_float("flux2.rope_theta").value_or(sizes.rope_theta);
    check(sizes.rope_theta > 1 && sizes.rope_theta <= kMaxRopeTheta, ErrorKind::bad_file,
          checkpoint.file(), ": its key flux2.rope_theta is ", sizes.rope_theta,
          ", where a finite number above 1 is expected; convert it again");
    check(sizes.hidden % sizes.head_dim == 0, ErrorKind::bad_file, checkpoint.file(),
          ": hidden size ", sizes.hidden, " is no multiple of the head size ", sizes.head_dim,
          "; the file is broken");
    return sizes;
}

TextFamily text_family(const Checkpoint& text_encoder) {
    return text_encoder.normalises_queries() ? TextFamily::qwen3 : TextFamily::mistral;
}

TextEncoderSizes read_text_encoder_sizes(const Checkpoint& checkpoint) {
    TextEncoderSizes sizes;
    sizes.family = text_family(checkpoint);
    sizes.hidden = width(checkpoint, "token_embd.weight");
    sizes.vocabulary = height(checkpoint, "token_embd.weight");
    sizes.ffn = height(checkpoint, "blk.0.ffn_up.weight");
    // Never hidden / heads: Qwen3-4B's heads are wider than that, Mistral's narrower.
    sizes.head_dim = sizes.family == TextFamily::qwen3
                         ? width(checkpoint, "blk.0.attn_q_norm.weight")
                         : configured_head_dim(checkpoint.source());
    const int64_t q = height(checkpoint, "blk.0.attn_q.weight");
    const int64_t k = height(checkpoint, "blk.0.attn_k.weight");
    sizes.n_head = q / sizes.head_dim;
    sizes.n_head_kv = k / sizes.head_dim;
    check(q == sizes.n_head * sizes.head_dim && k == sizes.n_head_kv * sizes.head_dim &&
              sizes.n_head_kv > 0 && sizes.n_head % sizes.n_head_kv == 0,
          ErrorKind::bad_file, checkpoint.file(), ": ", q, " query and ", k,
          " key channels do not divide into heads of ", sizes.head_dim, "; the file is broken");
    // Not num_hidden_layers of config.json: it stays as it was beside weights that were trimmed.
    const Metadata& keys = checkpoint.source().metadata();
    sizes.n_layers = count_blocks(
        checkpoint, "blk.", keys.get_int(architecture_of(checkpoint.source()) + ".block_count"));
    return sizes;
}

VaeSizes read_vae_sizes(const Checkpoint& checkpoint) {
    check(has_tensor_under(checkpoint, "encoder."), ErrorKind::bad_file, checkpoint.file(),
          ": is a decoder without its encoder (no encoder.conv_in.weight); use the whole "
          "autoencoder, ae.safetensors or full_encoder_small_decoder.safetensors");
    VaeSizes sizes;
    sizes.latent_channels = positive(checkpoint, "decoder.conv_in.weight",
                                     checkpoint.get("decoder.conv_in.weight").shape.ne[2]);
    for (size_t level = 0; level < VaeSizes::kLevels; ++level) {
        const std::string n = std::to_string(level);
        sizes.encoder_widths[level] =
            width(checkpoint, "encoder.down." + n + ".block.0.conv1.bias");
        sizes.decoder_widths[level] = width(checkpoint, "decoder.up." + n + ".block.0.conv1.bias");
    }
    return sizes;
}

TinyAutoencoderSizes read_tiny_autoencoder_sizes(const Checkpoint& checkpoint) {
    TinyAutoencoderSizes sizes;
    const Shape& conv_in = checkpoint.get("decoder.1.weight").shape;
    sizes.latent_channels = positive(checkpoint, "decoder.1.weight", conv_in.ne[2]);
    sizes.width = positive(checkpoint, "decoder.1.weight", conv_in.ne[3]);
    sizes.pool_width = width(checkpoint, "decoder.3.pool.1.weight");
    sizes.has_encoder = has_tensor_under(checkpoint, "encoder.");
    return sizes;
}

std::vector<ExpectedTensor> inventory(const TransformerSizes& sizes) {
    constexpr int64_t kTimeChannels = 256;  // of the sinusoidal embedding
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

std::vector<ExpectedTensor> inventory(const TextEncoderSizes& sizes) {
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

std::vector<ExpectedTensor> inventory(const VaeSizes& sizes) {
    List list;
    add_encoder(list, sizes);
    add_decoder(list, sizes);
    // Of the latent after 2x2 pixels became channels.
    list.vector("bn.running_mean", 4 * sizes.latent_channels);
    list.vector("bn.running_var", 4 * sizes.latent_channels);
    return list.take();
}

std::vector<ExpectedTensor> inventory(const TinyAutoencoderSizes& sizes) {
    List list;
    const auto add = [&](const std::string& half, int first, int end, bool pools = false) {
        add_tiny_blocks(list, sizes, half, first, end, pools);
    };
    if (sizes.has_encoder) {
        list.conv("encoder.0", 3, sizes.width, 3);
        add("encoder.", 1, 2);
        list.kernel("encoder.2", sizes.width, sizes.width, 3);
        add("encoder.", 3, 6);
        list.kernel("encoder.6", sizes.width, sizes.width, 3);
        add("encoder.", 7, 10);
        list.kernel("encoder.10", sizes.width, sizes.width, 3);
        add("encoder.", 11, 14, /*pools=*/true);
        list.conv("encoder.14", sizes.width, sizes.latent_channels, 3);
    }
    list.conv("decoder.1", sizes.latent_channels, sizes.width, 3);
    add("decoder.", 3, 6, /*pools=*/true);
    list.kernel("decoder.7", sizes.width, sizes.width, 3);
    add("decoder.", 8, 11);
    list.kernel("decoder.12", sizes.width, sizes.width, 3);
    add("decoder.", 13, 16);
    list.kernel("decoder.17", sizes.width, sizes.width, 3);
    add("decoder.", 18, 19);
    list.conv("decoder.19", sizes.width, 3, 3);
    return list.take();
}

std::vector<ExpectedTensor> check_inventory(const Checkpoint& checkpoint) {
    std::vector<ExpectedTensor> present;
    for (ExpectedTensor& expected : inventory_of(checkpoint)) {
        if (!expected.required && checkpoint.find(expected.name) == nullptr) {
            continue;
        }
        const ModelTensor& tensor = checkpoint.get(expected.name);
        check(same_sizes(tensor.shape, expected.shape), ErrorKind::bad_file, checkpoint.file(),
              ": tensor ", expected.name, " has shape ", to_string(tensor.shape), ", expected ",
              to_string(expected.shape),
              " by the shapes of the others; the file is broken or of another model");
        present.push_back(std::move(expected));
    }
    return present;
}

std::vector<std::string> unexpected_tensors(const Checkpoint& checkpoint,
                                            const std::vector<ExpectedTensor>& expected) {
    std::unordered_set<std::string> names;
    for (const ExpectedTensor& tensor : expected) {
        names.insert(tensor.name);
    }
    std::vector<std::string> unexpected;
    for (const ModelTensor& tensor : checkpoint.tensors()) {
        if (!names.contains(tensor.name)) {
            unexpected.push_back(tensor.name);
        }
    }
    return unexpected;
}

}  // namespace flux2
