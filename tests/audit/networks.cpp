#include "audit/networks.hpp"

#include "checkpoints/inventory.hpp"
#include "formats/gguf_writer.hpp"
#include "models/text_encoder.hpp"
#include "models/tiny_autoencoder.hpp"
#include "models/transformer.hpp"
#include "models/vae.hpp"
#include "support/folders.hpp"
#include "support/published_sizes.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <utility>

namespace flux2::test {
namespace {

constexpr int64_t kBlocks = 2;
constexpr int64_t kTextTokens = 512;

TransformerSizes with_few_blocks(TransformerSizes sizes) {
    sizes.n_double = sizes.n_single = kBlocks;
    return sizes;
}

TextEncoderSizes with_few_blocks(TextEncoderSizes sizes) {
    sizes.n_layers = kBlocks;
    return sizes;
}

// A file of this beginning and size, whose rest takes no room on disk.
void write_sparse(const std::filesystem::path& path, std::span<const std::byte> beginning,
                  uint64_t n_bytes) {
    write_file(path, beginning);
    std::filesystem::resize_file(path, n_bytes);
}

Checkpoint empty_checkpoint(const std::filesystem::path& path,
                            const std::vector<ExpectedTensor>& expected) {
    std::vector<GgufTensor> tensors;
    for (const ExpectedTensor& tensor : expected) {
        tensors.push_back({tensor.name, TensorType::f16, tensor.shape});
    }
    const GgufLayout layout = lay_out_gguf(Metadata(), tensors);
    write_sparse(path, layout.header, layout.file_bytes);
    return Checkpoint::open(path);
}

// A pair of low rank for every matrix of the blocks.
std::shared_ptr<const AdapterSet> empty_adapters(const std::filesystem::path& path,
                                                 const std::vector<ExpectedTensor>& expected,
                                                 const std::string& network) {
    constexpr int64_t kRank = 20;  // is filled up to a number that kernels like
    constexpr int64_t kBytes = 2;
    nlohmann::json header = nlohmann::json::object();
    int64_t end = 0;
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
        const int64_t begin = std::exchange(end, end + rows * columns * kBytes);
        header[name] = {
            {"dtype", "F16"}, {"shape", {rows, columns}}, {"data_offsets", {begin, end}}};
    };
    for (const ExpectedTensor& tensor : expected) {
        constexpr std::string_view kEnding = ".weight";
        if (tensor.name.find("blocks.") == std::string::npos || tensor.shape.n_dims != 2 ||
            !tensor.name.ends_with(kEnding)) {
            continue;
        }
        const std::string stem =
            "diffusion_model." + tensor.name.substr(0, tensor.name.size() - kEnding.size());
        add(stem + ".lora_A.weight", kRank, tensor.shape.ne[0]);
        add(stem + ".lora_B.weight", tensor.shape.ne[1], kRank);
    }
    const Bytes beginning = safetensors(header.dump());
    write_sparse(path, beginning, beginning.size() + static_cast<uint64_t>(end));
    const UsedAdapter adapter = {std::make_shared<AdapterFile>(AdapterFile::open(path)), {}};
    return std::make_shared<AdapterSet>(std::vector{adapter}, Part::transformer, expected, network);
}

}  // namespace

EmptyNetworks::EmptyNetworks() {
    const TransformerSizes klein_4b = kKlein4b;
    TransformerSizes klein_9b = klein_4b;
    klein_9b.hidden = 4096;
    klein_9b.mlp = 12288;
    klein_9b.text_width = 12288;
    TransformerSizes dev = klein_4b;
    dev.hidden = 6144;
    dev.mlp = 18432;
    dev.text_width = 15360;
    dev.guidance = true;
    add("klein 4B", klein_4b);
    add("klein 9B", klein_9b);
    add("dev", dev);

    const TextEncoderSizes qwen3_4b = kQwen3_4b;
    TextEncoderSizes qwen3_8b = qwen3_4b;
    qwen3_8b.hidden = 4096;
    qwen3_8b.ffn = 12288;
    TextEncoderSizes mistral = qwen3_4b;
    mistral.family = TextFamily::mistral;
    mistral.hidden = 5120;
    mistral.ffn = 32768;
    mistral.vocabulary = 131072;
    add("Qwen3-4B", qwen3_4b);
    add("Qwen3-8B", qwen3_8b);
    add("Mistral Small", mistral);

    const VaeSizes vae = {.latent_channels = 32,
                          .encoder_widths = {128, 256, 512, 512},
                          .decoder_widths = {128, 256, 512, 512}};
    VaeSizes small_decoder = vae;
    small_decoder.decoder_widths = {96, 192, 384, 384};
    add("autoencoder", vae);
    add("small decoder", small_decoder);

    const TinyAutoencoderSizes tiny = {
        .latent_channels = 32, .width = 64, .pool_width = 256, .has_encoder = true};
    tiny_autoencoders_.push_back(
        {"TAEF2", tiny, empty_checkpoint(folder_ / "taef2.gguf", tensor_list(tiny))});

    // The bundled model, whose widths are others.
    const std::filesystem::path bundled = test::tiny_model();
    for (const char* name : {"flux2-tiny-bf16.gguf", "flux2-tiny-base-q6_k.gguf"}) {
        Checkpoint checkpoint = Checkpoint::open(bundled / name);
        const TransformerSizes sizes = read_transformer_sizes(checkpoint);
        transformers_.push_back({name, sizes, std::move(checkpoint), nullptr});
    }
    Checkpoint text_encoder = Checkpoint::open(bundled / "text-encoder-bf16.gguf");
    const TextEncoderSizes text_sizes = read_text_encoder_sizes(text_encoder);
    text_encoders_.push_back({"bundled text encoder", text_sizes, std::move(text_encoder)});
    Checkpoint bundled_vae = Checkpoint::open(bundled / "vae-bf16.gguf");
    const VaeSizes bundled_sizes = read_vae_sizes(bundled_vae);
    vaes_.push_back({"bundled autoencoder", bundled_sizes, std::move(bundled_vae)});
}

void EmptyNetworks::add(const std::string& name, const TransformerSizes& published) {
    const TransformerSizes sizes = with_few_blocks(published);
    const auto tensors = tensor_list(sizes);
    Checkpoint checkpoint = empty_checkpoint(folder_ / (name + ".gguf"), tensors);
    transformers_.push_back(
        {name, sizes, std::move(checkpoint),
         empty_adapters(folder_ / (name + " LoRA.safetensors"), tensors, name)});
}

void EmptyNetworks::add(const std::string& name, const TextEncoderSizes& published) {
    const TextEncoderSizes sizes = with_few_blocks(published);
    text_encoders_.push_back(
        {name, sizes, empty_checkpoint(folder_ / (name + ".gguf"), tensor_list(sizes))});
}

void EmptyNetworks::add(const std::string& name, const VaeSizes& sizes) {
    vaes_.push_back(
        {name, sizes, empty_checkpoint(folder_ / (name + ".gguf"), tensor_list(sizes))});
}

void EmptyNetworks::visit_transformer(const TransformerFile& file, const Backend& backend,
                                      std::optional<TensorType> type, const Visit& visit) const {
    const int64_t n_img = 35 * 29;  // 560x464 pixels: odd numbers
    const int64_t n_ref = 21 * 17;
    Transformer network(backend, file.sizes, file.checkpoint, {.type = type});
    const auto reserve = [&](const std::string& what, const TransformerShape& shape) {
        network.reserve(shape);
        visit(file.name + ", " + what, *network.graph());
    };
    const TransformerShape plain = {.n_img = n_img, .n_txt = kTextTokens};
    reserve("one picture", plain);
    TransformerShape shape = {.n_img = 64 * 64, .n_ref = n_ref, .n_txt = kTextTokens};
    reserve("references", shape);
    shape.mode = ReferenceMode::extract;
    reserve("references, first step with a cache", shape);
    shape.mode = ReferenceMode::cached;
    reserve("references, later steps with a cache", shape);
    shape = {.n_img = n_img, .n_ref = n_ref, .n_txt = kTextTokens, .n_pictures = 2, .n_texts = 2};
    reserve("two pictures with two texts", shape);
    shape = {.n_img = 256 * 256, .n_ref = 2 * 64 * 64, .n_txt = kTextTokens};
    reserve("the largest picture, references", shape);
    if (file.adapters) {
        Transformer adapted(backend, file.sizes, file.checkpoint,
                            {.type = type, .adapters = file.adapters});
        adapted.reserve(plain);
        visit(file.name + ", LoRA", *adapted.graph());
    }
    Transformer streamed(backend, file.sizes, file.checkpoint,
                         {.type = type, .stream_blocks = true});
    streamed.reserve(plain);
    visit(file.name + ", blocks streamed", *streamed.graph());
}

void EmptyNetworks::visit_graphs(const Backend& backend, std::optional<TensorType> type,
                                 const Visit& visit) const {
    for (const TransformerFile& file : transformers_) {
        visit_transformer(file, backend, type, visit);
    }
    for (const TextEncoderFile& file : text_encoders_) {
        TextEncoder network(backend, file.sizes, {.layers = {1, file.sizes.n_layers}},
                            file.checkpoint, {.type = type});
        network.reserve(kTextTokens);
        visit(file.name, *network.graph());
    }
    const auto visit_both_ways = [&](const std::string& name, Autoencoder& network) {
        network.reserve_encode(560, 464);
        visit(name + ", encoding", *network.graph());
        network.reserve_decode(1024, 1024);
        visit(name + ", decoding", *network.graph());
    };
    for (const VaeFile& file : vaes_) {
        Vae network(backend, file.sizes, file.checkpoint, {.type = type});
        visit_both_ways(file.name, network);
    }
    for (const TinyAutoencoderFile& file : tiny_autoencoders_) {
        TinyAutoencoder network(backend, file.sizes, file.checkpoint, {.type = type});
        visit_both_ways(file.name, network);
    }
}

size_t EmptyNetworks::n_networks() const {
    return transformers_.size() + text_encoders_.size() + vaes_.size() + tiny_autoencoders_.size();
}

}  // namespace flux2::test
