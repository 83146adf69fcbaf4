// Training that goes on from LoRA files of several dialects, whose values are written here.
#include "formats/safetensors.hpp"
#include "train/continued_adapter.hpp"
#include "train/small_training.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flux2 {
namespace {

using test::even_values;
using test::trained_sizes;

FloatTensor file_tensor(const std::string& name, std::vector<int64_t> shape, uint32_t seed) {
    size_t n = 1;
    for (const int64_t size : shape) {
        n *= static_cast<size_t>(size);
    }
    return {name, std::move(shape), even_values(n, seed, 0.3f)};
}

TrainedAdapter continued(const test::TemporaryFolder& folder,
                         const std::vector<FloatTensor>& tensors,
                         const AdapterChoice& choice = {}) {
    write_safetensors(folder / "lora.safetensors", tensors);
    return continue_adapter(folder / "lora.safetensors", trained_sizes(false), "the test model",
                            choice);
}

std::vector<float> part_of(const TrainedAdapter& adapter, size_t first, size_t n) {
    const std::span<const float> values = adapter.parameters().subspan(first, n);
    return {values.begin(), values.end()};
}

// A pair of kohya's names, [rank, 64] and [out, rank].
std::vector<FloatTensor> kohya_pair(const std::string& name, int64_t out, int64_t rank,
                                    float alpha) {
    return {file_tensor("lora_unet_" + name + ".lora_down.weight", {rank, 64}, 1),
            file_tensor("lora_unet_" + name + ".lora_up.weight", {out, rank}, 2),
            {"lora_unet_" + name + ".alpha", {}, {alpha}}};
}

TEST_CASE("a continued LoRA has rank, alpha, matrices and values of its file") {
    const test::TemporaryFolder folder;
    const std::vector<FloatTensor> pair = kohya_pair("double_blocks_1_img_attn_proj", 64, 4, 2);
    const TrainedAdapter adapter = continued(folder, pair);
    CHECK(adapter.rank() == 4);
    CHECK(adapter.alpha() == 2);
    REQUIRE(adapter.modules().size() == 1);
    const TrainedModule& module = adapter.modules()[0];
    CHECK(module.name == "double_blocks.1.img_attn.proj");
    CHECK(part_of(adapter, module.a.first, 4 * 64) == pair[0].values);
    CHECK(part_of(adapter, module.b.first, 64 * 4) == pair[1].values);
    // With another alpha the scale is 1, and B half of what it was: the same product.
    const TrainedAdapter other = continued(folder, pair, {.rank = 4, .alpha = 4});
    std::vector<float> half = pair[1].values;
    for (float& value : half) {
        value /= 2;
    }
    CHECK(part_of(other, module.b.first, 64 * 4) == half);
}

TEST_CASE("patterns choose further matrices, which begin like new ones") {
    const test::TemporaryFolder folder;
    const std::vector<FloatTensor> pair = kohya_pair("double_blocks_1_img_attn_proj", 64, 4, 4);
    const TrainedAdapter adapter = continued(folder, pair, {.include = {"img_attn"}, .seed = 5});
    const TrainedAdapter fresh(trained_sizes(false),
                               {.rank = 4, .include = {"img_attn"}, .seed = 5});
    REQUIRE(adapter.modules().size() == 4);
    for (size_t i = 0; i < 4; ++i) {
        const TrainedModule& module = adapter.modules()[i];
        CAPTURE(module.name);
        const size_t n = static_cast<size_t>(4 * (module.n_in + module.n_out));
        const bool is_new =
            part_of(adapter, module.a.first, n) == part_of(fresh, module.a.first, n);
        CHECK(is_new == (module.name != "double_blocks.1.img_attn.proj"));
    }
}

TEST_CASE("q and v apart become a pair of the fused matrix with the same effect") {
    const test::TemporaryFolder folder;
    const std::string stem = "transformer.transformer_blocks.0.attn.";
    const std::vector<FloatTensor> tensors = {
        file_tensor(stem + "to_q.lora_A.weight", {2, 64}, 1),
        file_tensor(stem + "to_q.lora_B.weight", {64, 2}, 2),
        file_tensor(stem + "to_v.lora_A.weight", {2, 64}, 3),
        file_tensor(stem + "to_v.lora_B.weight", {64, 2}, 4),
        file_tensor(stem + "to_out.0.lora_A.weight", {2, 64}, 5),
        file_tensor(stem + "to_out.0.lora_B.weight", {64, 2}, 6)};
    const TrainedAdapter adapter = continued(folder, tensors);
    CHECK(adapter.rank() == 4);  // two and two
    CHECK(adapter.scale() == 1.0f);
    REQUIRE(adapter.modules().size() == 2);
    const TrainedModule& qkv = adapter.modules()[0];
    REQUIRE(qkv.name == "double_blocks.0.img_attn.qkv");
    CHECK(part_of(adapter, qkv.a.first, 2 * 64) == tensors[0].values);
    CHECK(part_of(adapter, qkv.a.first + 2 * 64, 2 * 64) == tensors[2].values);
    for (size_t row = 0; row < 3 * 64; ++row) {
        const std::vector<float> b = part_of(adapter, qkv.b.first + row * 4, 4);
        std::vector<float> expected(4);  // rows of k have none
        const size_t pair = row / 64;
        for (size_t i = 0; i < 2 && pair != 1; ++i) {
            expected[pair + i] = tensors[pair + 1].values[row % 64 * 2 + i];
        }
        REQUIRE(b == expected);
    }
    // The other one is filled up: the first two columns of B are the file's, the others zero.
    const TrainedModule& proj = adapter.modules()[1];
    CHECK(part_of(adapter, proj.a.first, 2 * 64) == tensors[4].values);
    for (size_t row = 0; row < 64; ++row) {
        const std::vector<float>& b = tensors[5].values;
        REQUIRE(part_of(adapter, proj.b.first + row * 4, 4) ==
                std::vector<float>{b[row * 2], b[row * 2 + 1], 0, 0});
    }
}

TEST_CASE("files that cannot be continued are refused with the reason") {
    const test::TemporaryFolder folder;
    const auto refused = [&](const std::vector<FloatTensor>& tensors, const AdapterChoice& choice,
                             ErrorKind kind, const char* words) {
        const test::CaughtError error = test::error_of([&] { continued(folder, tensors, choice); });
        CAPTURE(error.message);
        CHECK(error.kind == kind);
        CHECK(error.mentions("lora.safetensors"));
        CHECK(error.mentions(words));
    };
    const auto pair = kohya_pair("double_blocks_1_img_attn_proj", 64, 4, 4);
    refused(pair, {.rank = 8}, ErrorKind::bad_argument, "has rank 4, and 8 is asked for");
    refused(pair, {.include = {"txt"}}, ErrorKind::bad_argument,
            "double_blocks.1.img_attn.proj, which the patterns do not choose");
    refused(kohya_pair("double_blocks_7_img_attn_proj", 64, 4, 4), {}, ErrorKind::bad_file,
            "the test model");
    refused(kohya_pair("double_blocks_1_img_attn_proj", 128, 4, 4), {}, ErrorKind::bad_file,
            "128 x 64");
    std::vector<FloatTensor> both = pair;
    for (const FloatTensor& tensor : kohya_pair("single_stream_modulation_lin", 192, 4, 4)) {
        both.push_back(tensor);
    }
    refused(both, {}, ErrorKind::bad_argument,
            "single_stream_modulation.lin, which cannot be trained");
    refused({file_tensor("lora_unet_double_blocks_1_img_attn_proj.lokr_w1", {8, 8}, 1),
             file_tensor("lora_unet_double_blocks_1_img_attn_proj.lokr_w2", {8, 8}, 2)},
            {}, ErrorKind::unsupported, "is a LoKr");
    std::vector<FloatTensor> dora = pair;
    dora.push_back(file_tensor("lora_unet_double_blocks_1_img_attn_proj.dora_scale", {64, 1}, 3));
    refused(dora, {}, ErrorKind::unsupported, "with DoRA");
}

}  // namespace
}  // namespace flux2
