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

// The number after "blk." in "blk.12.attn_q.weight"; nothing for names of another form.
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

// How many blocks the file should have: up to the last block with any tensor, and at least as many
// as its configuration says, so that missing tensors are noticed. Limited by the number of tensors
// in the file, which bounds the work for a wrong configuration.
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

// config.json of a diffusers folder, which is recognised by the name of its weights file. Next to
// other files a config.json may belong to another part.
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

std::vector<ExpectedTensor> expected_tensors(const Checkpoint& checkpoint) {
    switch (checkpoint.part()) {
        case Part::transformer:
            return tensor_list(read_transformer_sizes(checkpoint));
        case Part::text_encoder:
            return tensor_list(read_text_encoder_sizes(checkpoint));
        case Part::vae:
            return tensor_list(read_vae_sizes(checkpoint));
        case Part::tiny_autoencoder:
            return tensor_list(read_tiny_autoencoder_sizes(checkpoint));
    }
    fail(ErrorKind::internal, "unknown part");
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
    // Not num_hidden_layers of config.json: it is unchanged when weights were trimmed.
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

std::vector<ExpectedTensor> check_inventory(const Checkpoint& checkpoint) {
    std::vector<ExpectedTensor> present;
    for (ExpectedTensor& expected : expected_tensors(checkpoint)) {
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
