// Adapter files matched with a small transformer: what fits, what is used, and what it changes.
#include "adapters/adapter_set.hpp"
#include "support/published_sizes.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <memory>

namespace flux2 {
namespace {

using test::error_of;
using test::TestTensor;

// Small whole numbers, so that F32 sums are exact.
std::vector<float> numbers(int64_t n, int step) {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) {
        values.push_back(static_cast<float>(i * step % 7 - 3));
    }
    return values;
}

TestTensor tensor(const std::string& name, int64_t rows, int64_t columns, int step) {
    return {name, {columns, rows}, test::bytes_of(numbers(rows * columns, step))};
}

// A pair of factor 1 for an original name.
std::vector<TestTensor> pair(const std::string& module, int64_t n_out, int64_t n_in, int64_t rank,
                             int step = 3) {
    return {tensor("diffusion_model." + module + ".lora_A.weight", rank, n_in, step),
            tensor("diffusion_model." + module + ".lora_B.weight", n_out, rank, step + 2)};
}

std::vector<TestTensor> joined(std::vector<TestTensor> a, const std::vector<TestTensor>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

constexpr TransformerSizes kSmall = {.hidden = 16,
                                     .head_dim = 8,
                                     .mlp = 48,
                                     .text_width = 24,
                                     .channels = 8,
                                     .n_double = 2,
                                     .n_single = 3,
                                     .guidance = false};

const std::string kQkv = "double_blocks.0.img_attn.qkv";
const std::string kProj = "double_blocks.1.img_attn.proj";
const std::string kLinear1 = "single_blocks.2.linear1";

// Files in a folder of their own, and sets made of them.
class Files {
  public:
    std::shared_ptr<const AdapterFile> open(const std::string& name,
                                            const std::vector<TestTensor>& tensors) const {
        test::write_file(folder_ / name, test::safetensors_of(tensors));
        return std::make_shared<const AdapterFile>(AdapterFile::open(folder_ / name));
    }
    // Pairs of rank 2 for three modules of the small network.
    std::shared_ptr<const AdapterFile> open_three() const {
        return open("three.safetensors",
                    joined(joined(pair(kQkv, 48, 16, 2), pair(kProj, 16, 16, 2)),
                           pair(kLinear1, 144, 16, 2)));
    }

  private:
    test::TemporaryFolder folder_;
};

AdapterSet small_set(const std::vector<UsedAdapter>& adapters) {
    return {adapters, Part::transformer, tensor_list(kSmall), "the small model"};
}

// The fields of Adapter that tests set.
struct Use {
    float strength = 1;
    std::string include = {}, exclude = {}, block_strengths = {};
};

UsedAdapter used(std::shared_ptr<const AdapterFile> file, const Use& use = {}) {
    const std::string path = file->file();
    return {std::move(file), {path, use.strength, use.include, use.exclude, use.block_strengths}};
}

// up * down
std::vector<float> product(const LowRankPair& pair, size_t n_out, size_t n_in) {
    const auto rank = static_cast<size_t>(pair.rank);
    REQUIRE(pair.up.size() == n_out * rank);
    REQUIRE(pair.down.size() == rank * n_in);
    std::vector<float> result(n_out * n_in);
    for (size_t o = 0; o < n_out; ++o) {
        for (size_t i = 0; i < n_in; ++i) {
            for (size_t k = 0; k < rank; ++k) {
                result[o * n_in + i] += pair.up[o * rank + k] * pair.down[k * n_in + i];
            }
        }
    }
    return result;
}

std::vector<float> applied(const AdapterSet& set, const std::string& tensor,
                           std::vector<float> values) {
    set.apply(tensor, values);
    return values;
}

}  // namespace

TEST_CASE("a set without adapters changes nothing") {
    for (const AdapterSet& set : {AdapterSet(), small_set({})}) {
        CHECK(set.empty());
        CHECK(set.identity().empty());
        CHECK_FALSE(set.changes(kQkv + ".weight"));
        CHECK_FALSE(set.is_low_rank(kQkv + ".weight"));
    }
}

TEST_CASE("pairs of several adapters are stacked with their strengths") {
    const Files files;
    const auto first = files.open("a.safetensors", pair(kProj, 16, 16, 2, 3));
    const auto second = files.open("b.safetensors", pair(kProj, 16, 16, 3, 4));
    const AdapterSet set =
        small_set({used(first, {.strength = 0.5f}), used(second, {.strength = -2})});
    const std::string name = kProj + ".weight";
    REQUIRE(set.is_low_rank(name));
    CHECK(set.rank(name) == 5);
    CHECK(set.n_used() == std::vector<size_t>{1, 1});
    const LowRankPair stacked = set.low_rank(name);
    CHECK(stacked.rank == 5);

    std::vector<float> expected(256);
    const auto add = [&](int64_t rank, int step, float strength) {
        const std::vector<float> change =
            product({rank, numbers(rank * 16, step), numbers(16 * rank, step + 2)}, 16, 16);
        for (size_t i = 0; i < expected.size(); ++i) {
            expected[i] += strength * change[i];
        }
    };
    add(2, 3, 0.5f);
    add(3, 4, -2);
    CHECK(product(stacked, 16, 16) == expected);
    CHECK(applied(set, name, std::vector<float>(256)) == expected);
}

TEST_CASE("separate projections change their own rows of the fused matrix") {
    const Files files;
    std::vector<TestTensor> tensors;
    for (const std::string projection : {"to_q", "to_v"}) {
        const std::string stem = "transformer.transformer_blocks.0.attn." + projection;
        tensors.push_back(tensor(stem + ".lora_A.weight", 2, 16, 3));
        tensors.push_back(tensor(stem + ".lora_B.weight", 16, 2, projection == "to_q" ? 5 : 6));
    }
    const AdapterSet set = small_set({used(files.open("qv.safetensors", tensors))});
    const std::string name = kQkv + ".weight";
    CHECK(set.rank(name) == 4);
    const std::vector<float> q = product({2, numbers(32, 3), numbers(32, 5)}, 16, 16);
    const std::vector<float> v = product({2, numbers(32, 3), numbers(32, 6)}, 16, 16);
    std::vector<float> expected = q;
    expected.resize(512);  // k is not changed
    expected.insert(expected.end(), v.begin(), v.end());
    CHECK(product(set.low_rank(name), 48, 16) == expected);
    CHECK(applied(set, name, std::vector<float>(768)) == expected);
}

TEST_CASE("adapters are applied in their order") {
    const Files files;
    const auto replaced = files.open(
        "set.safetensors", {tensor("diffusion_model." + kProj + ".set_weight", 16, 16, 2)});
    const auto added =
        files.open("diff.safetensors", {tensor("diffusion_model." + kProj + ".diff", 16, 16, 5)});
    const std::string name = kProj + ".weight";
    std::vector<float> both = numbers(256, 2);
    for (size_t i = 0; i < both.size(); ++i) {
        both[i] += numbers(256, 5)[i];
    }
    const AdapterSet in_order = small_set({used(replaced), used(added)});
    CHECK_FALSE(in_order.is_low_rank(name));
    CHECK(applied(in_order, name, numbers(256, 1)) == both);
    CHECK(applied(small_set({used(added), used(replaced)}), name, numbers(256, 1)) ==
          numbers(256, 2));
}

TEST_CASE("filters choose modules by name without the ending") {
    const Files files;
    const auto file = files.open_three();
    const auto names_used = [&](const Use& use) {
        const AdapterSet set = small_set({used(file, use)});
        std::string names;
        for (const std::string& name : {kQkv, kProj, kLinear1}) {
            names += set.changes(name + ".weight") ? name + " " : "";
        }
        return names;
    };
    CHECK(names_used({}) == kQkv + " " + kProj + " " + kLinear1 + " ");
    CHECK(names_used({.include = "double_blocks"}) == kQkv + " " + kProj + " ");
    CHECK(names_used({.include = "qkv$|linear1$"}) == kQkv + " " + kLinear1 + " ");
    CHECK(names_used({.exclude = "^double_blocks\\.[1-9]"}) == kQkv + " " + kLinear1 + " ");
    CHECK(names_used({.include = "double", .exclude = "qkv"}) == kProj + " ");

    const auto broken = error_of([&] { names_used({.exclude = "double("}); });
    CHECK(broken.kind == ErrorKind::bad_argument);
    CHECK(broken.mentions("exclude 'double(' is no regular expression"));
    const auto none = error_of([&] { names_used({.include = "tripel"}); });
    CHECK(none.kind == ErrorKind::bad_argument);
    CHECK(none.mentions("three.safetensors: include 'tripel'"));
}

TEST_CASE("strengths of blocks multiply the strength, and later ones win") {
    const Files files;
    const auto file = files.open_three();
    const auto factors = [&](const std::string& text) {
        const AdapterSet set = small_set({used(file, {.strength = 2, .block_strengths = text})});
        std::vector<float> result;
        for (const std::string& name : {kQkv, kProj, kLinear1}) {
            // up[1] is 2 for every module when the strength is 1.
            result.push_back(
                set.changes(name + ".weight") ? set.low_rank(name + ".weight").up[1] / 2 : 0);
        }
        return result;
    };
    using Factors = std::vector<float>;
    REQUIRE(numbers(2, 5)[1] == 2);
    CHECK(factors("") == Factors{2, 2, 2});
    CHECK(factors("double=0.5") == Factors{1, 1, 2});
    CHECK(factors("double=0.5,double.1=-3") == Factors{1, -6, 2});
    CHECK(factors("double.1=-3,double=0.5") == Factors{1, 1, 2});
    CHECK(factors("single.0-9=0") == Factors{2, 2, 0});
    CHECK(factors("single.0-1=0") == Factors{2, 2, 2});
    for (const char* text :
         {"double", "double=", "double=x", "triple=1", "double.=1", "double.a=1", "double.-1=1",
          "double.3-1=1", "double=1,", "=1", "double=nan", "double =1", "double.1.2=1"}) {
        CAPTURE(text);
        const auto error = error_of([&] { factors(text); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("double=0.5,single.0-9=0,double.3=1.2"));
    }
}

TEST_CASE("an adapter of strength 0 is as if it were absent") {
    const Files files;
    const auto file = files.open_three();
    const auto other = files.open("other.safetensors", pair(kProj, 16, 16, 4));
    const AdapterSet alone = small_set({used(file)});
    const AdapterSet with_zero = small_set({used(other, {.strength = 0}), used(file)});
    CHECK(with_zero.identity() == alone.identity());
    CHECK(with_zero.rank(kProj + ".weight") == 2);
    CHECK(with_zero.n_used() == std::vector<size_t>{0, 3});
    CHECK(small_set({used(file, {.strength = 0})}).empty());
    CHECK(small_set({used(file, {.block_strengths = "double=0,single=0"})}).identity().empty());
    for (const float strength :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        const auto error = error_of([&] { small_set({used(file, {.strength = strength})}); });
        CHECK(error.kind == ErrorKind::bad_argument);
        CHECK(error.mentions("three.safetensors: strength"));
    }
}

TEST_CASE("the identity changes with files, strengths, filters and order") {
    const Files files;
    const auto a = files.open_three();
    const auto b = files.open("other.safetensors", pair(kProj, 16, 16, 4));
    const std::vector<std::vector<UsedAdapter>> sets = {
        {used(a)},
        {used(b)},
        {used(a, {.strength = 0.5f})},
        {used(a, {.strength = 0.50000006f})},
        {used(a, {.include = "qkv"})},
        {used(a, {.exclude = "qkv"})},
        {used(a, {.block_strengths = "double=0.5"})},
        {used(a), used(b)},
        {used(b), used(a)},
    };
    for (size_t i = 0; i < sets.size(); ++i) {
        CHECK(small_set(sets[i]).identity() == small_set(sets[i]).identity());
        for (size_t j = 0; j < i; ++j) {
            CAPTURE(i);
            CAPTURE(j);
            CHECK(small_set(sets[i]).identity() != small_set(sets[j]).identity());
        }
    }
}

TEST_CASE("modules of other parts of a model are left to the sets of these parts") {
    const Files files;
    const AdapterSet set({used(files.open_three())}, Part::text_encoder, {}, "Qwen3 4B");
    CHECK(set.empty());
    CHECK(set.n_used() == std::vector<size_t>{0});
}

TEST_CASE("an adapter of a larger model is refused with what was found and expected") {
    const Files files;
    const auto klein = [](const UsedAdapter& adapter) {
        return AdapterSet({adapter}, Part::transformer, tensor_list(test::kKlein4b),
                          "FLUX.2 klein 4B");
    };
    const auto wide =
        files.open("wide.safetensors", pair("double_blocks.0.img_mlp.0", 24576, 4096, 1));
    auto error = error_of([&] { klein(used(wide)); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(
        error.mentions("wide.safetensors: module double_blocks.0.img_mlp.0 is 24576 x 4096, "
                       "FLUX.2 klein 4B's is 18432 x 3072"));
    CHECK(error.mentions("it was made for FLUX.2 klein 9B"));

    const auto deep =
        files.open("deep.safetensors", pair("double_blocks.7.img_mlp.0", 18432, 3072, 1));
    error = error_of([&] { klein(used(deep)); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(
        error.mentions("module double_blocks.7.img_mlp.0 is for a larger model: FLUX.2 klein 4B "
                       "has double blocks 0 to 4"));
}

TEST_CASE("a module for a layer that the model lacks is refused unless it is left out") {
    const Files files;
    const auto guidance =
        files.open("guidance.safetensors",
                   joined(pair("guidance_in.in_layer", 16, 256, 1), pair(kProj, 16, 16, 1)));
    const auto error = error_of([&] { small_set({used(guidance)}); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("guidance_in.in_layer is for a layer that the small model does not have"));
    CHECK(small_set({used(guidance, {.exclude = "guidance"})}).n_used() == std::vector<size_t>{1});
}

}  // namespace flux2
