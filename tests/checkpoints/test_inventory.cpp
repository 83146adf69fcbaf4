#include "checkpoints/inventory.hpp"
#include "formats/gguf_writer.hpp"
#include "support/published_sizes.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace flux2;
using namespace flux2::test;

namespace {

int64_t parameters(const std::vector<ExpectedTensor>& tensors) {
    int64_t n = 0;
    for (const ExpectedTensor& tensor : tensors) {
        n += tensor.shape.elements();
    }
    return n;
}

std::vector<ExpectedTensor> starting_with(const std::vector<ExpectedTensor>& tensors,
                                          std::string_view prefix) {
    std::vector<ExpectedTensor> found;
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
                 [&](const ExpectedTensor& tensor) { return tensor.name.starts_with(prefix); });
    return found;
}

std::vector<ExpectedTensor> without(std::vector<ExpectedTensor> tensors, std::string_view name) {
    std::erase_if(tensors, [&](const ExpectedTensor& tensor) { return tensor.name == name; });
    return tensors;
}

std::vector<TestTensor> files_of(const std::vector<ExpectedTensor>& expected) {
    std::vector<TestTensor> tensors;
    for (const ExpectedTensor& tensor : expected) {
        tensors.push_back(counting_tensor(
            tensor.name, {tensor.shape.ne.begin(), tensor.shape.ne.begin() + tensor.shape.n_dims}));
    }
    return tensors;
}

// The file stays mapped after the folder is gone.
Checkpoint open_bytes(const Bytes& bytes) {
    const TemporaryFolder folder;
    write_file(folder / "part.safetensors", bytes);
    return Checkpoint::open(folder / "part.safetensors");
}

Checkpoint open_tensors(const std::vector<TestTensor>& tensors) {
    return open_bytes(safetensors_of(tensors));
}

TestTensor& named(std::vector<TestTensor>& tensors, std::string_view name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TestTensor& tensor) { return tensor.name == name; });
    REQUIRE(found != tensors.end());
    return *found;
}

void reshape(std::vector<TestTensor>& tensors, const char* name,
             const std::vector<int64_t>& shape) {
    named(tensors, name) = counting_tensor(name, shape);
}

CaughtError refused(const std::vector<TestTensor>& tensors) {
    const auto error = error_of([&] { check_inventory(open_tensors(tensors)); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("part.safetensors"));
    return error;
}

const TransformerSizes kTinyTransformer = {.hidden = 8,
                                           .head_dim = 4,
                                           .mlp = 6,
                                           .text_width = 10,
                                           .channels = 2,
                                           .n_double = 2,
                                           .n_single = 3,
                                           .guidance = true};
const TextEncoderSizes kTinyQwen3 = {.hidden = 6,
                                     .ffn = 10,
                                     .head_dim = 4,
                                     .n_head = 4,
                                     .n_head_kv = 2,
                                     .n_layers = 2,
                                     .vocabulary = 12};
// Heads of 128, which no shape shows; together they are narrower than the hidden size.
const TextEncoderSizes kTinyMistral = {.family = TextFamily::mistral,
                                       .hidden = 300,
                                       .ffn = 3,
                                       .head_dim = 128,
                                       .n_head = 2,
                                       .n_head_kv = 1,
                                       .n_layers = 2,
                                       .vocabulary = 5};
const TinyAutoencoderSizes kTinyAutoencoder = {
    .latent_channels = 2, .width = 4, .pool_width = 3, .has_encoder = true};
const VaeSizes kTinyVae = {
    .latent_channels = 2, .encoder_widths = {4, 6, 6, 8}, .decoder_widths = {2, 4, 4, 6}};

const VaeSizes kVae = {.latent_channels = 32,
                       .encoder_widths = {128, 256, 512, 512},
                       .decoder_widths = {128, 256, 512, 512}};

}  // namespace

// The numbers of tensors and parameters below are those of the published checkpoints.

TEST_CASE("the inventory of klein 4B has its tensors and parameters") {
    const auto tensors = tensor_list(kKlein4b);
    CHECK(tensors.size() == 149);
    CHECK(parameters(tensors) == 3'875'544'576);
}

TEST_CASE("the inventory of klein 9B has its tensors and parameters") {
    const auto tensors = tensor_list(TransformerSizes{.hidden = 4096,
                                                      .head_dim = 128,
                                                      .mlp = 12288,
                                                      .text_width = 12288,
                                                      .channels = 128,
                                                      .n_double = 8,
                                                      .n_single = 24,
                                                      .guidance = false});
    CHECK(tensors.size() == 201);
    CHECK(parameters(tensors) == 9'078'581'248);
}

TEST_CASE("the inventory of dev has its tensors and parameters") {
    const auto tensors = tensor_list(TransformerSizes{.hidden = 6144,
                                                      .head_dim = 128,
                                                      .mlp = 18432,
                                                      .text_width = 15360,
                                                      .channels = 128,
                                                      .n_double = 8,
                                                      .n_single = 48,
                                                      .guidance = true});
    CHECK(tensors.size() == 299);
    CHECK(parameters(tensors) == 32'223'281'152);
}

TEST_CASE("the inventory of Qwen3-4B has its tensors and parameters") {
    // Its output matrix is the embedding, so there is none of its own.
    const auto tensors = without(tensor_list(kQwen3_4b), "output.weight");
    CHECK(tensors.size() == 398);
    CHECK(parameters(tensors) == 4'022'468'096);
}

TEST_CASE("the inventory of Qwen3-8B has its tensors and parameters") {
    const auto tensors = tensor_list(TextEncoderSizes{.hidden = 4096,
                                                      .ffn = 12288,
                                                      .head_dim = 128,
                                                      .n_head = 32,
                                                      .n_head_kv = 8,
                                                      .n_layers = 36,
                                                      .vocabulary = 151936});
    CHECK(tensors.size() == 399);
    CHECK(parameters(tensors) == 8'190'735'360);
}

TEST_CASE("the inventory of Mistral Small has its tensors and parameters") {
    TextEncoderSizes sizes = {.family = TextFamily::mistral,
                              .hidden = 5120,
                              .ffn = 32768,
                              .head_dim = 128,
                              .n_head = 32,
                              .n_head_kv = 8,
                              .n_layers = 40,
                              .vocabulary = 131072};
    CHECK(tensor_list(sizes).size() == 363);
    CHECK(parameters(tensor_list(sizes)) == 23'572'403'200);
    // What FLUX.2 dev needs of it.
    sizes.n_layers = 30;
    const auto needed = without(without(tensor_list(sizes), "output.weight"), "output_norm.weight");
    CHECK(parameters(needed) == 17'343'754'240);
}

TEST_CASE("the inventory of the autoencoder has its tensors and parameters") {
    const auto tensors = tensor_list(kVae);
    const auto encoder = starting_with(tensors, "encoder.");
    CHECK(encoder.size() == 108);
    CHECK(parameters(encoder) == 34'425'856);
    const auto decoder = starting_with(tensors, "decoder.");
    CHECK(decoder.size() == 140);
    CHECK(parameters(decoder) == 49'620'259);
    const auto statistics = starting_with(tensors, "bn.");
    CHECK(statistics.size() == 2);
    CHECK(parameters(statistics) == 256);
    CHECK(tensors.size() == 250);
}

TEST_CASE("the inventory of the small decoder has its parameters") {
    VaeSizes sizes = kVae;
    sizes.decoder_widths = {96, 192, 384, 384};
    CHECK(parameters(starting_with(tensor_list(sizes), "decoder.")) == 27'947'235);
    CHECK(parameters(starting_with(tensor_list(sizes), "encoder.")) == 34'425'856);
}

TEST_CASE("no inventory names a tensor twice") {
    for (const auto& tensors :
         {tensor_list(kTinyTransformer), tensor_list(kTinyQwen3), tensor_list(kTinyVae)}) {
        std::set<std::string> names;
        for (const ExpectedTensor& tensor : tensors) {
            CHECK_MESSAGE(names.insert(tensor.name).second, tensor.name);
        }
    }
}

TEST_CASE("a transformer's sizes are read off its tensors") {
    const auto expected = tensor_list(kTinyTransformer);
    const Checkpoint checkpoint = open_tensors(files_of(expected));
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    CHECK(sizes.hidden == 8);
    CHECK(sizes.head_dim == 4);
    CHECK(sizes.mlp == 6);
    CHECK(sizes.text_width == 10);
    CHECK(sizes.channels == 2);
    CHECK(sizes.n_double == 2);
    CHECK(sizes.n_single == 3);
    CHECK(sizes.guidance);
    CHECK(check_inventory(checkpoint).size() == expected.size());
}

TEST_CASE("a text encoder's sizes are read off its tensors") {
    const auto expected = tensor_list(kTinyQwen3);
    const Checkpoint checkpoint = open_tensors(files_of(expected));
    const TextEncoderSizes sizes = read_text_encoder_sizes(checkpoint);
    CHECK(sizes.hidden == 6);
    CHECK(sizes.ffn == 10);
    CHECK(sizes.head_dim == 4);
    CHECK(sizes.n_head == 4);
    CHECK(sizes.n_head_kv == 2);
    CHECK(sizes.n_layers == 2);
    CHECK(sizes.vocabulary == 12);
    CHECK(check_inventory(checkpoint).size() == expected.size());
}

TEST_CASE("Mistral's sizes are read off its tensors, all but the head size") {
    const auto expected = tensor_list(kTinyMistral);
    const Checkpoint checkpoint = open_tensors(files_of(expected));
    const TextEncoderSizes sizes = read_text_encoder_sizes(checkpoint);
    CHECK(sizes.family == TextFamily::mistral);
    CHECK(sizes.hidden == 300);
    CHECK(sizes.ffn == 3);
    CHECK(sizes.head_dim == 128);
    CHECK(sizes.n_head == 2);
    CHECK(sizes.n_head_kv == 1);
    CHECK(sizes.n_layers == 2);
    CHECK(sizes.vocabulary == 5);
    CHECK(check_inventory(checkpoint).size() == expected.size());
}

TEST_CASE("an autoencoder's sizes are read off its tensors") {
    const auto expected = tensor_list(kTinyVae);
    const Checkpoint checkpoint = open_tensors(files_of(expected));
    const VaeSizes sizes = read_vae_sizes(checkpoint);
    CHECK(sizes.latent_channels == 2);
    CHECK(sizes.encoder_widths == kTinyVae.encoder_widths);
    CHECK(sizes.decoder_widths == kTinyVae.decoder_widths);
    CHECK(check_inventory(checkpoint).size() == expected.size());
}

TEST_CASE("the tensors behind the last used layer may be absent") {
    const auto expected =
        without(without(tensor_list(kTinyQwen3), "output.weight"), "output_norm.weight");
    CHECK(check_inventory(open_tensors(files_of(expected))).size() == expected.size());
}

// FLUX.2 reads the outputs of layers, so nothing computes the norm behind the last one and the
// head; trimmed files lack both, and models whose head is the embedding lack that.
bool may_be_absent(const std::string& name) {
    return name == "output_norm.weight" || name == "output.weight";
}

TEST_CASE("every missing tensor of every part is named") {
    for (const auto& expected :
         {tensor_list(kTinyTransformer), tensor_list(kTinyQwen3), tensor_list(kTinyMistral),
          tensor_list(kTinyVae), tensor_list(kTinyAutoencoder)}) {
        const std::vector<TestTensor> whole = files_of(expected);
        CHECK_NOTHROW(check_inventory(open_tensors(whole)));
        for (size_t i = 0; i < whole.size(); ++i) {
            std::vector<TestTensor> tensors = whole;
            tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(i));
            const std::string& name = whole[i].name;
            CAPTURE(name);
            if (may_be_absent(name)) {
                CHECK_NOTHROW(check_inventory(open_tensors(tensors)));
                continue;
            }
            const Bytes file = i % 2 == 0 ? safetensors_of(tensors) : gguf_of(tensors);
            const auto error = error_of([&] { check_inventory(open_bytes(file)); });
            CHECK(error.kind == ErrorKind::bad_file);
            CHECK_MESSAGE(error.mentions(name), error.message);
        }
    }
}

TEST_CASE("a block of which anything is left must be whole, and so must those before it") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
    tensors.push_back(counting_tensor("single_blocks.4.norm.key_norm.scale", {4}));
    CHECK(refused(tensors).mentions("single_blocks.3.linear1.weight"));
    tensors = files_of(tensor_list(kTinyTransformer));
    std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("single_"); });
    tensors.push_back(counting_tensor("single_stream_modulation.lin.weight", {8, 24}));
    CHECK(refused(tensors).mentions("single_blocks.0.linear1.weight"));
}

TEST_CASE("a block number beyond reason costs no memory") {
    for (const char* number : {"1000000000000", "9223372036854775807"}) {
        std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
        tensors.push_back(counting_tensor(std::string("double_blocks.") + number + ".x", {4}));
        const AllocationWatch watch;
        CHECK(refused(tensors).mentions("double_blocks.2.img_attn.qkv.weight"));
        CHECK(watch.largest() < 1 << 20);
    }
}

TEST_CASE("blocks that the configuration of a diffusers folder promises are required") {
    const TemporaryFolder folder;
    const std::filesystem::path file = folder / "diffusion_pytorch_model.safetensors";
    write_file(file, safetensors_of(files_of(tensor_list(kTinyTransformer))));
    const auto configure = [&](std::string_view text) { write_file(folder / "config.json", text); };
    const auto missed = [&] {
        return error_of([&] { check_inventory(Checkpoint::open(file)); }).message;
    };
    configure(R"({"num_layers": 2, "num_single_layers": 3})");
    CHECK_NOTHROW(check_inventory(Checkpoint::open(file)));
    configure(R"({"num_layers": 3})");
    CHECK(missed().find("double_blocks.2.img_attn.qkv.weight") != std::string::npos);
    configure(R"({"num_single_layers": 9999999999})");
    CHECK(missed().find("single_blocks.3.linear1.weight") != std::string::npos);
    // Beside a file of another name it may belong to another part.
    std::filesystem::rename(file, folder / "klein.safetensors");
    CHECK_NOTHROW(check_inventory(Checkpoint::open(folder / "klein.safetensors")));
}

TEST_CASE("layers that the keys of a text encoder promise are required") {
    const TemporaryFolder folder;
    const std::vector<TestTensor> tensors = files_of(tensor_list(kTinyQwen3));
    const auto write = [&](uint32_t block_count) {
        std::vector<GgufTensor> headers;
        for (const ExpectedTensor& tensor : tensor_list(kTinyQwen3)) {
            headers.push_back({tensor.name, TensorType::f32, tensor.shape});
        }
        Metadata metadata;
        metadata.set("general.architecture", std::string("qwen3"));
        metadata.set("qwen3.block_count", block_count);
        GgufWriter writer(folder / "text.gguf", metadata, headers);
        for (size_t i = 0; i < tensors.size(); ++i) {
            writer.write(i, 0, tensors[i].data);
        }
        writer.finish(metadata);
        return Checkpoint::open(folder / "text.gguf");
    };
    CHECK_NOTHROW(check_inventory(write(2)));
    const auto error = error_of([&] { check_inventory(write(3)); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("blk.2.attn_norm.weight"));
}

TEST_CASE("a tensor of the wrong shape is named with both shapes") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
    reshape(tensors, "double_blocks.1.txt_mlp.0.weight", {8, 13});
    const auto error = refused(tensors);
    CHECK(error.mentions("double_blocks.1.txt_mlp.0.weight"));
    CHECK(error.mentions("[8, 13]"));
    CHECK(error.mentions("[8, 12]"));
}

TEST_CASE("a transposed matrix is refused") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
    reshape(tensors, "single_blocks.2.linear2.weight", {8, 14});
    CHECK(refused(tensors).mentions("single_blocks.2.linear2.weight"));
}

TEST_CASE("dimensions of one are no difference") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyVae));
    reshape(tensors, "decoder.mid.attn_1.q.weight", {6, 6});
    CHECK_NOTHROW(check_inventory(open_tensors(tensors)));
    reshape(tensors, "decoder.mid.attn_1.q.weight", {6, 1, 6});
    CHECK_NOTHROW(check_inventory(open_tensors(tensors)));
    reshape(tensors, "decoder.mid.attn_1.q.weight", {36});
    CHECK(refused(tensors).mentions("decoder.mid.attn_1.q.weight"));
}

TEST_CASE("an empty tensor that should give a size is named") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
    reshape(tensors, "txt_in.weight", {0, 8});
    CHECK(refused(tensors).mentions("txt_in.weight"));
    tensors = files_of(tensor_list(kTinyVae));
    reshape(tensors, "decoder.conv_in.weight", {3, 3, 0, 6});
    CHECK(refused(tensors).mentions("decoder.conv_in.weight"));
}

TEST_CASE("a hidden size that is no multiple of the head size is refused") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyTransformer));
    reshape(tensors, "double_blocks.0.img_attn.norm.query_norm.scale", {3});
    CHECK(refused(tensors).mentions("head size 3"));
}

TEST_CASE("channels that do not divide into heads are refused") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyQwen3));
    reshape(tensors, "blk.0.attn_k.weight", {6, 7});
    CHECK(refused(tensors).mentions("heads of 4"));
    reshape(tensors, "blk.0.attn_k.weight", {6, 2});
    CHECK(refused(tensors).mentions("heads of 4"));
    // Four heads cannot share three keys.
    reshape(tensors, "blk.0.attn_k.weight", {6, 12});
    CHECK(refused(tensors).mentions("heads of 4"));
}

TEST_CASE("tensors that belong to no part are listed") {
    std::vector<TestTensor> tensors = files_of(tensor_list(kTinyVae));
    tensors.push_back(
        {.name = "bn.num_batches_tracked", .shape = {}, .data = Bytes(8), .type = TensorType::i64});
    const Checkpoint checkpoint = open_tensors(tensors);
    CHECK(unexpected_tensors(checkpoint, check_inventory(checkpoint)) ==
          std::vector<std::string>{"bn.num_batches_tracked"});
}
