// flux2 selftest on the bundled recordings: every network and whole runs against the reference, in
// the types people use.
#include "formats/tensor_source.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <filesystem>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

test::ProgramResult selftest(const std::string& arguments) {
    return test::run_program(test::flux2_path() + " selftest " + arguments);
}

int count(const std::string& text, const std::string& word) {
    int n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        ++n;
    }
    return n;
}

// Tensors recorded in tests/fixtures/klein: 2 of the text encoder, 4 of the transformer, 2 of the
// autoencoder; whole runs: sigmas and latents of 4, 4, 4, 4 and 6 steps, and one picture.
constexpr int kRecorded = 2 + 4 + 2 + 5 + 22 + 1;

TEST_CASE("F32 on the CPU is equal to the reference within rounding") {
    const auto result = selftest("--device CPU");
    CHECK(result.exit_code == 0);
    CHECK(count(result.out, "  ok\n") == kRecorded);
    CHECK(count(result.out, "FAIL") == 0);
    for (const char* stage : {"prompt_embeds", "velocity", "decoded", "encoded",
                              "pipeline_kv_edit2", "pipeline_base_cfg", "pipeline_klein_edit1"}) {
        CHECK(result.out.find(stage) != std::string::npos);
    }
}

TEST_CASE("types with rounding stay within their limits") {
    for (const char* type :
         {"BF16", "F16", "Q8_0", "Q6_K", "Q5_1", "Q4_K", "Q4_0", "MXFP4", "Q3_K"}) {
        CAPTURE(std::string(type));
        const auto result = selftest("--device CPU --type " + std::string(type));
        CHECK(result.exit_code == 0);
        CHECK(count(result.out, "FAIL") == 0);
    }
}

TEST_CASE("a changed weight fails, and the dump shows what was computed") {
    const test::TemporaryFolder folder;
    fs::copy(test::fixture("klein"), folder / "set");
    test::Bytes bytes = test::read_file(folder / "set/flux2.safetensors");
    // The last block of data belongs to the last tensor; its sign bits are inverted.
    for (size_t i = bytes.size() - 2000; i + 1 < bytes.size(); i += 2) {
        bytes[i + 1] ^= std::byte{0x80};
    }
    test::write_file(folder / "set/flux2.safetensors", bytes);
    const auto result = selftest("--device CPU --golden " + (folder / "set").string() + " --dump " +
                                 (folder / "dump.safetensors").string());
    CHECK(result.exit_code == 1);
    CHECK(count(result.out, "FAIL") > 0);
    const TensorSource dump = TensorSource::open(folder / "dump.safetensors");
    const TensorInfo* velocity = dump.find("flux2/velocity");
    REQUIRE(velocity != nullptr);
    // As recorded: [1, 48, 128] in PyTorch's order.
    CHECK(velocity->shape.n_dims == 3);
    CHECK(velocity->shape == Shape{128, 48, 1});
    CHECK(dump.find("pipeline_klein_t2i/image") != nullptr);
}

TEST_CASE("bad arguments of selftest exit with 2, missing folders with 3") {
    CHECK(selftest("--type Q99").exit_code == 2);
    const auto coarse = selftest("--type Q2_K");
    CHECK(coarse.exit_code == 2);
    CHECK(coarse.err.find("cannot judge weights in Q2_K") != std::string::npos);
    CHECK(selftest("--device CUDA99").exit_code == 2);
    CHECK(selftest("--golden /no/such/folder").exit_code == 3);
    const auto no_dump = selftest("--dump " + test::flux2_path() + "/x.safetensors");
    CHECK(no_dump.exit_code == 3);
    CHECK(no_dump.out.empty());  // refused before the work
    const test::TemporaryFolder empty;
    CHECK(selftest("--golden " + empty.path().string()).exit_code == 3);
    CHECK(test::run_program(test::flux2_path() + " nonsense").exit_code == 2);
    CHECK(test::run_program(test::flux2_path() + " devices").exit_code == 0);
}

}  // namespace
}  // namespace flux2
