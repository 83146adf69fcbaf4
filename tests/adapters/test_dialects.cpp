// The recorded adapters under the names of every maker: each file changes a network exactly as the
// one that the recording was made with. What that one does is checked by replaying the recordings.
#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "support/diffusers_names.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

std::string flat(const std::string& name) {
    return replaced(name, ".", "_");
}

// "double_blocks.0.img_mlp.0" -> "transformer_blocks.0.ff.linear_in"; q, k and v stay fused.
std::string in_diffusers(const std::string& module) {
    std::string name = replaced(module, "double_blocks.", "transformer_blocks.");
    name = replaced(name, "single_blocks.", "single_transformer_blocks.");
    for (const auto& [ours, theirs] : test::kDiffusersMatrices) {
        name = replaced(name, ours, theirs);
    }
    const std::array<std::pair<const char*, const char*>, 4> kFused = {
        {{"img_attn.qkv", "attn.to_qkv"},
         {"txt_attn.qkv", "attn.to_added_qkv"},
         {"linear1", "attn.to_qkv_mlp_proj"},
         {"linear2", "attn.to_out"}}};
    for (const auto& [ours, theirs] : kFused) {
        name = replaced(name, ours, theirs);
    }
    return name;
}

struct Dialect {
    const char* name;
    std::function<std::string(const std::string& module)> stem;
    const char *down, *up;
};

const std::vector<Dialect> kDialects = {
    {"musubi", [](const std::string& m) { return "lora_unet_" + flat(m); }, ".lora_down.weight",
     ".lora_up.weight"},
    {"musubi, converted wrongly",
     [](const std::string& m) { return "diffusion_model." + replaced(m, "_attn.", "_attn_"); },
     ".lora_A.weight", ".lora_B.weight"},
    {"ai-toolkit", [](const std::string& m) { return "diffusion_model." + m; }, ".lora_A.weight",
     ".lora_B.weight"},
    {"ComfyUI with two prefixes", [](const std::string& m) { return "model.diffusion_model." + m; },
     ".lora_down.weight", ".lora_up.weight"},
    {"peft", [](const std::string& m) { return "base_model.model." + m; }, ".lora_A.default.weight",
     ".lora_B.default.weight"},
    {"OneTrainer, original", [](const std::string& m) { return m; }, ".lora_down.weight",
     ".lora_up.weight"},
    {"OneTrainer, mixture",
     [](const std::string& m) { return "lora_transformer_" + flat(in_diffusers(m)); },
     ".lora_down.weight", ".lora_up.weight"},
    {"SimpleTuner", [](const std::string& m) { return "transformer." + in_diffusers(m); },
     ".lora_A.weight", ".lora_B.weight"},
    {"DiffSynth", [](const std::string& m) { return "pipe.dit." + in_diffusers(m); },
     ".lora_A.default.weight", ".lora_B.default.weight"},
    {"mflux", [](const std::string& m) { return "lora_unet_" + flat(in_diffusers(m)); },
     ".lora_down.weight", ".lora_up.weight"},
    {"LyCORIS", [](const std::string& m) { return "lycoris_" + flat(in_diffusers(m)); },
     ".lora_down.weight", ".lora_up.weight"},
    {"LyCORIS, original names", [](const std::string& m) { return "lycoris_" + flat(m); },
     ".lora_down.weight", ".lora_up.weight"},
};

std::string suffix_of(AdapterRole role, const Dialect& dialect) {
    switch (role) {
        case AdapterRole::down:
            return dialect.down;
        case AdapterRole::up:
            return dialect.up;
        case AdapterRole::alpha:
            return ".alpha";
        case AdapterRole::hada_w1_a:
            return ".hada_w1_a";
        case AdapterRole::hada_w1_b:
            return ".hada_w1_b";
        case AdapterRole::hada_w2_a:
            return ".hada_w2_a";
        case AdapterRole::hada_w2_b:
            return ".hada_w2_b";
        case AdapterRole::lokr_w1:
            return ".lokr_w1";
        case AdapterRole::lokr_w2:
            return ".lokr_w2";
        case AdapterRole::lokr_w1_a:
            return ".lokr_w1_a";
        case AdapterRole::lokr_w1_b:
            return ".lokr_w1_b";
        case AdapterRole::lokr_w2_a:
            return ".lokr_w2_a";
        case AdapterRole::lokr_w2_b:
            return ".lokr_w2_b";
        case AdapterRole::magnitude:
            return ".dora_scale";
        default:
            FAIL("a role that the recorded adapters do not have");
            return "";
    }
}

// The modules of a file under other names.
void write_in(const Dialect& dialect, const AdapterFile& file, const fs::path& path) {
    std::vector<test::TestTensor> tensors;
    for (const AdapterModule& module : file.modules()) {
        const std::string name = module.tensor.substr(0, module.tensor.rfind('.'));
        for (const auto& [role, tensor] : module.tensors) {
            std::vector<int64_t> ne;
            for (int i = 0; i < tensor->shape.n_dims; ++i) {
                ne.push_back(tensor->shape.ne[static_cast<size_t>(i)]);
            }
            tensors.push_back({dialect.stem(name) + suffix_of(role, dialect), ne,
                               test::Bytes(tensor->bytes.begin(), tensor->bytes.end()),
                               tensor->type});
        }
    }
    test::write_file(path, test::safetensors_of(tensors));
}

// One matrix of each kind of block is enough: names are what differs.
constexpr std::array<const char*, 3> kMatrices = {"double_blocks.1.img_attn.qkv.weight",
                                                  "double_blocks.0.txt_mlp.0.weight",
                                                  "single_blocks.2.linear1.weight"};

// The matrix as the model has it, changed where the set changes it.
std::vector<float> changed(const AdapterSet& set, const Checkpoint& checkpoint,
                           const char* tensor) {
    const ModelTensor& matrix = checkpoint.get(tensor);
    std::vector<float> values(static_cast<size_t>(matrix.shape.elements()));
    matrix.read_f32(0, values);
    if (set.changes(tensor)) {
        set.apply(tensor, values);
    }
    return values;
}

AdapterSet set_of(const std::shared_ptr<const AdapterFile>& file, const TransformerSizes& sizes) {
    Adapter use;
    use.file = file->file();
    use.strength = 0.75f;
    return AdapterSet({{file, use}}, Part::transformer, tensor_list(sizes), "the tiny model");
}

TEST_CASE("the recorded adapters do the same under the names of every maker") {
    const Checkpoint checkpoint =
        Checkpoint::open(fs::path(test::tiny_model()) / "flux2-tiny-bf16.gguf", Part::transformer);
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    const test::TemporaryFolder folder;
    for (const char* name : {"kohya", "peft", "loha", "lokr", "dora"}) {
        const auto original = std::make_shared<const AdapterFile>(
            AdapterFile::open(test::fixture(std::string("tiny/lora/") + name + ".safetensors")));
        const AdapterSet expected = set_of(original, sizes);
        std::map<std::string, std::vector<float>> theirs;
        for (const char* tensor : kMatrices) {
            theirs[tensor] = changed(expected, checkpoint, tensor);
        }
        for (const Dialect& dialect : kDialects) {
            CAPTURE(name);
            CAPTURE(dialect.name);
            const fs::path path = folder / "renamed.safetensors";
            write_in(dialect, *original, path);
            const auto renamed = std::make_shared<const AdapterFile>(AdapterFile::open(path));
            CHECK(renamed->unused().empty());
            CHECK(renamed->modules().size() == original->modules().size());
            const AdapterSet set = set_of(renamed, sizes);
            for (const char* tensor : kMatrices) {
                CAPTURE(tensor);
                REQUIRE(set.changes(tensor) == expected.changes(tensor));
                CHECK(changed(set, checkpoint, tensor) == theirs[tensor]);
            }
        }
    }
}

}  // namespace
}  // namespace flux2
