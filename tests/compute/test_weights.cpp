#include "checkpoints/checkpoint.hpp"
#include "compute/cpu/amx_tiles.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"
#include "compute/graph.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/weights.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_type.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cstring>

namespace flux2 {
namespace {

const std::vector<ExpectedTensor> kTensors = {{"img_in.weight", {32, 8}},
                                              {"single_blocks.0.norm.query_norm.scale", {5}}};
const std::vector<ExpectedTensor> kSmallTensors = {{"img_in.weight", {32, 4}}};

// Two matrices and a vector of a transformer, enough to be recognised.
std::filesystem::path write_model(const test::TemporaryFolder& folder) {
    test::write_file(folder / "x.safetensors",
                     test::safetensors_of(
                         {test::counting_tensor("double_stream_modulation_img.lin.weight", {32, 4}),
                          test::counting_tensor("img_in.weight", {32, 8}, -100.0f),
                          test::counting_tensor("single_blocks.0.norm.query_norm.scale", {5})}));
    return folder / "x.safetensors";
}

std::vector<std::byte> bytes_of(const ggml_tensor* tensor) {
    std::vector<std::byte> bytes(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
    return bytes;
}

TEST_CASE("weights have the file's values, or those of the type asked for") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder));
    const Backend backend("CPU");
    std::vector<float> expected(32 * 8);
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<float>(i) - 100.0f;
    }
    Weights plain(backend, checkpoint, kTensors, {});
    const ggml_tensor* f32 = plain.matrix("img_in.weight");
    plain.load();
    CHECK(f32->type == GGML_TYPE_F32);
    CHECK(bytes_of(f32) == test::bytes_of(expected));

    // Repacked matrices cannot be read back.
    Weights quantised(backend, checkpoint, kTensors, {.type = TensorType::q8_0, .repack = false});
    const ggml_tensor* q8 = quantised.matrix("img_in.weight");
    const ggml_tensor* norm = quantised.vector("single_blocks.0.norm.query_norm.scale");
    quantised.load();
    CHECK(q8->type == GGML_TYPE_Q8_0);
    CHECK(norm->type == GGML_TYPE_F32);
    std::vector<std::byte> encoded(ggml_nbytes(q8));
    ggml_quantize_chunk(GGML_TYPE_Q8_0, expected.data(), encoded.data(), 0, 8, 32, nullptr);
    CHECK(bytes_of(q8) == encoded);
}

TEST_CASE("codes with a scale are scaled on their way into memory") {
    const test::TemporaryFolder folder;
    // 0x38 is 1 in E4M3 and 0x40 is 2.
    test::Bytes codes(32 * 4, std::byte{0x38});
    codes.back() = std::byte{0x40};
    test::write_file(folder / "x.safetensors",
                     test::safetensors_of(
                         {test::counting_tensor("double_stream_modulation_img.lin.weight", {32, 4}),
                          {"img_in.weight", {32, 4}, codes, TensorType::f8_e4m3},
                          {"img_in.weight_scale", {}, test::bytes_of(std::vector<float>{0.75f})}}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
    const Backend backend("CPU");
    std::vector<float> expected(32 * 4, 0.75f);
    expected.back() = 1.5f;
    Weights plain(backend, checkpoint, kSmallTensors, {});
    const ggml_tensor* matrix = plain.matrix("img_in.weight");
    plain.load();
    CHECK(matrix->type == (backend.multiplies_bf16() ? GGML_TYPE_BF16 : GGML_TYPE_F16));
    std::vector<float> values(expected.size());
    to_f32(static_cast<TensorType>(matrix->type), bytes_of(matrix), values);
    CHECK(values == expected);
    Weights f32(backend, checkpoint, kSmallTensors, {.type = TensorType::f32});
    const ggml_tensor* wide = f32.matrix("img_in.weight");
    f32.load();
    CHECK(bytes_of(wide) == test::bytes_of(expected));
}

TEST_CASE("weights that need no conversion stay in the mapped file") {
    const test::TemporaryFolder folder;
    test::write_file(
        folder / "x.gguf",
        test::gguf_of({test::counting_tensor("double_stream_modulation_img.lin.weight", {32, 4}),
                       test::counting_tensor("img_in.weight", {32, 8})}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.gguf");
    const Backend backend("CPU");
    Weights mapped(backend, checkpoint, kTensors, {});
    const ggml_tensor* matrix = mapped.matrix("img_in.weight");
    mapped.load();
    CHECK(mapped.memory().own.host == 0);
    CHECK(matrix->data == checkpoint.get("img_in.weight").pieces.front().bytes.data());
    Weights converted(backend, checkpoint, kTensors, {.type = TensorType::f16});
    converted.matrix("img_in.weight");
    converted.load();
    CHECK(converted.memory().own.host >= 32 * 8 * 2);
}

TEST_CASE("matrices laid out for the CPU multiply as they did, and leave the file") {
    const test::TemporaryFolder folder;
    std::vector<float> values(256 * 64);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i * 37 % 101) - 50.0f;
    }
    Backend backend("CPU", 2);
    for (const TensorType type : {TensorType::q8_0, TensorType::q4_0, TensorType::q4_k}) {
        CAPTURE(type_name(type));
        write_safetensors(folder / "x.safetensors",
                          {{"double_stream_modulation_img.lin.weight", {64, 256}, values},
                           {"img_in.weight", {64, 256}, values}});
        const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
        const auto product = [&](bool repack) {
            Weights weights(backend, checkpoint, {{"img_in.weight", {256, 64}}},
                            {.type = type, .repack = repack});
            ggml_tensor* matrix = weights.matrix("img_in.weight");
            weights.load();
            const auto fast = backend.repack_buffer_type(matrix);
            const bool in_tiles = cpu::is_for_tiles(matrix);
            CHECK(in_tiles == cpu::suits_tiles(matrix));
            const bool ours = cpu::is_repacked(matrix);
            CHECK(ours == (repack && !in_tiles && cpu::suits_repacking(matrix)));
            const bool repacked = ours || ggml_backend_buffer_get_type(matrix->buffer) == fast;
            CHECK(repacked == (repack && !in_tiles && fast != nullptr));
            CHECK(weights.memory().own.host >= ggml_nbytes(matrix));
            Graph graph(backend, 16);
            ggml_tensor* x = graph.input_f32("x", {256, 5});
            ggml_tensor* y = linear(graph, matrix, x);
            graph.finish(y);
            graph.set(x, std::span<const float>(values).first(256 * 5));
            graph.compute();
            return graph.read(y).data;
        };
        const std::vector<float> plain = product(false);
        const std::vector<float> repacked = product(true);
        REQUIRE(plain.size() == 64 * 5);
        double difference = 0;
        double size = 0;
        for (size_t i = 0; i < plain.size(); ++i) {
            difference += std::pow(static_cast<double>(repacked[i] - plain[i]), 2);
            size += std::pow(static_cast<double>(plain[i]), 2);
        }
        // Both round x to 8 bits; with AMX both factors are rounded to BF16 instead.
        const bool in_bf16 = cpu::has_amx() && type == TensorType::q8_0;
        CHECK(std::sqrt(difference / size) < (in_bf16 ? 5e-3 : 1e-5));
    }
}

TEST_CASE("a type whose blocks do not fit leaves a matrix as it is") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder));
    const Backend backend("CPU");
    Weights weights(backend, checkpoint, kTensors, {.type = TensorType::q4_k});
    CHECK(weights.matrix("img_in.weight")->type == GGML_TYPE_F32);
}

TEST_CASE("a wrong shape or a missing tensor is refused by name before anything is loaded") {
    const test::TemporaryFolder folder;
    const Checkpoint checkpoint = Checkpoint::open(write_model(folder));
    const Backend backend("CPU");
    Weights weights(backend, checkpoint, {{"img_in.weight", {32, 9}}, {"txt_in.weight", {32, 9}}},
                    {});
    const auto shape = test::error_of([&] { weights.matrix("img_in.weight"); });
    CHECK(shape.kind == ErrorKind::bad_file);
    CHECK(shape.mentions("img_in.weight"));
    CHECK(shape.mentions("[32, 8]"));
    CHECK(shape.mentions("[32, 9]"));
    const auto missing = test::error_of([&] { weights.matrix("txt_in.weight"); });
    CHECK(missing.kind == ErrorKind::bad_file);
    CHECK(missing.mentions("txt_in.weight"));
}

TEST_CASE("an unknown device is refused with the known ones") {
    const auto error = test::error_of([] { Backend("CUDA99"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("CPU"));
    CHECK(Backend("cpu").name() == "CPU");
}

TEST_CASE("a converted matrix is loaded in the memory that is told ahead, with the same bits") {
    const test::TemporaryFolder folder;
    constexpr int64_t kIn = 2048;
    constexpr int64_t kOut = 4096;
    test::write_file(folder / "x.safetensors",
                     test::safetensors_of(
                         {test::counting_tensor("double_stream_modulation_img.lin.weight", {32, 4}),
                          test::counting_tensor("img_in.weight", {kIn, kOut}, -4e6f)}));
    const Checkpoint checkpoint = Checkpoint::open(folder / "x.safetensors");
    const std::vector<ExpectedTensor> tensors = {{"img_in.weight", {kIn, kOut}}};
    const WeightOptions options = {.type = TensorType::q8_0};
    constexpr uint64_t kWhole = kIn * kOut / 32 * 34;
    // 2^20 values in F32 and encoded, by each thread.
    constexpr uint64_t kParts = 2 * ((1 << 20) * sizeof(float) + (1 << 20) / 32 * 34);

    const Backend measuring("CPU", 2, BackendUse::measure);
    Weights measured(measuring, checkpoint, tensors, options);
    const ggml_tensor* matrix = measured.matrix("img_in.weight");
    measured.load();
    const uint64_t told = measured.memory().loading;
    CHECK(told <= kParts / 2 + (cpu::is_repacked(matrix) ? 0 : kWhole));

    const Backend backend("CPU", 2);
    Weights weights(backend, checkpoint, tensors, options);
    const ggml_tensor* loaded = weights.matrix("img_in.weight");
    const test::AllocationWatch watch;
    weights.load();
    CHECK(watch.largest() <= told);
    CHECK(weights.memory().loading == told);
    if (!cpu::is_repacked(loaded)) {
        MESSAGE("this CPU repacks by ggml, whose memory cannot be read back");
        return;
    }
    // Quantised and repacked as a whole.
    std::vector<float> values(kIn * kOut);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i) - 4e6f;
    }
    std::vector<std::byte> rows(kWhole);
    ggml_quantize_chunk(GGML_TYPE_Q8_0, values.data(), rows.data(), 0, kOut, kIn, nullptr);
    std::vector<std::byte> expected(kWhole);
    ggml_tensor whole = *loaded;
    whole.data = expected.data();
    cpu::repack(rows, 0, &whole);
    const auto* found = static_cast<const std::byte*>(loaded->data);
    CHECK(std::equal(expected.begin(), expected.end(), found));
}

}  // namespace
}  // namespace flux2
