// States of training runs as files, and the log that goes with them.
#include "support/folders.hpp"
#include "support/support.hpp"
#include "train/loss_curve.hpp"
#include "train/training_log.hpp"
#include "train/training_state.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2 {
namespace {

using test::TemporaryFolder;

TrainingState small_state() {
    return {.n_steps = 12,
            .settings = {{"learning_rate", "0.1"}, {"seed", "3"}},
            .parameters = {1, -2.5f, 3e-30f},
            .optimiser = {.n_steps = 12,
                          .mean = {.values = {0.1f, 0.2f, 0.3f}, .codes = {}, .largest = {}},
                          .square = {.values = {}, .codes = {0, 7, 255}, .largest = {2}}},
            .average = {4, 5, 6}};
}

TEST_CASE("a state is read as it was written") {
    const TemporaryFolder folder;
    const TrainingState written = small_state();
    write_state(folder / "a.state", view_of(written));
    const TrainingState read = read_state(folder / "a.state");
    CHECK(read.n_steps == 12);
    CHECK(read.settings == written.settings);
    CHECK(read.parameters == written.parameters);
    CHECK(read.optimiser.n_steps == 12);
    CHECK(read.optimiser.mean.values == written.optimiser.mean.values);
    CHECK(read.optimiser.mean.codes.empty());
    CHECK(read.optimiser.square.values.empty());
    CHECK(read.optimiser.square.codes == written.optimiser.square.codes);
    CHECK(read.optimiser.square.largest == written.optimiser.square.largest);
    CHECK(read.average == written.average);
    CHECK(folder.names() == std::vector<std::string>{"a.state"});
}

TEST_CASE("damaged states and other files are refused") {
    const TemporaryFolder folder;
    write_state(folder / "a.state", view_of(small_state()));
    test::Bytes bytes = test::read_file(folder / "a.state");
    bytes.back() ^= std::byte{1};
    test::write_file(folder / "b.state", bytes);
    CHECK(test::error_of([&] { read_state(folder / "b.state"); }).mentions("damaged"));
    bytes.resize(bytes.size() - 8);
    test::write_file(folder / "c.state", bytes);
    CHECK(test::error_of([&] { read_state(folder / "c.state"); }).kind == ErrorKind::bad_file);
    const std::filesystem::path lora =
        std::filesystem::path(test::tiny_model()) / "blueprint-lora.safetensors";
    CHECK(test::error_of([&] { read_state(lora); }).mentions("no state of a training run"));
    CHECK(test::error_of([&] { read_state(folder / "absent.state"); }).kind == ErrorKind::bad_file);
}

TEST_CASE("a state is written from where it lies, without copies of its arrays") {
    const TemporaryFolder folder;
    TrainingState state = small_state();
    constexpr size_t kMany = 1'000'000;
    state.parameters.assign(kMany, 1.5f);
    state.average.assign(kMany, 2.5f);
    {
        const test::AllocationWatch watch;
        write_state(folder / "a.state", view_of(state));
        CHECK(watch.largest() < kMany);  // a quarter of one array
    }
    CHECK(read_state(folder / "a.state").average == state.average);
}

TEST_CASE("settings that are not UTF-8 are written, and are the same when the run resumes") {
    const TemporaryFolder folder;
    TrainingState state = small_state();
    state.settings = {{"diffusion-model", "caf\xE9.gguf of 5 bytes"}, {"trigger_word", "\xFF\xFE"}};
    write_state(folder / "a.state", view_of(state));
    const TrainingState read = read_state(folder / "a.state");
    CHECK(read.settings.at("diffusion-model") == "caf\xEF\xBF\xBD.gguf of 5 bytes");
    CHECK_NOTHROW(check_same_settings(read.settings, state.settings, "a.state"));
    state.settings["diffusion-model"] = "caf\xE9.gguf of 6 bytes";
    CHECK(test::error_of([&] {
              check_same_settings(read.settings, state.settings, "a.state");
          }).mentions("of 5 bytes -> "));
}

TEST_CASE("changed settings are named with both values") {
    const RunSettings stored = {{"seed", "1"}, {"network_dim", "8"}, {"old", "x"}};
    CHECK_NOTHROW(check_same_settings(stored, stored, "a.state"));
    const RunSettings now = {{"seed", "2"}, {"network_dim", "8"}, {"new", "y"}};
    const auto error = test::error_of([&] { check_same_settings(stored, now, "a.state"); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("seed 1 -> 2"));
    CHECK(error.mentions("old x -> none"));
    CHECK(error.mentions("new none -> y"));
    CHECK_FALSE(error.mentions("network_dim"));
}

TEST_CASE("states of a folder are found by the run's name, in order of steps") {
    const TemporaryFolder folder;
    for (const char* name :
         {"run-step00000020.state", "run-step00000003.state", "run-step00000020.safetensors",
          "other-step00000001.state", "run-stepx0000020.state"}) {
        test::write_file(folder / name, "x");
    }
    CHECK(stored_steps(folder.path(), "run") == std::vector<int64_t>{3, 20});
    CHECK(state_file("d", "run", 3) == std::filesystem::path("d/run-step00000003.state"));
    CHECK(adapter_file("d", "run", 20) == std::filesystem::path("d/run-step00000020.safetensors"));
}

StepResult result_of(int64_t step, double loss) {
    return {.step = step,
            .epoch = 1,
            .loss = loss,
            .learning_rate = 0.1,
            .gradient_norm = 1,
            .examples = {{0.1, loss}, {0.9, 2 * loss}}};
}

TEST_CASE("losses are smoothed, by bands of t too") {
    const TemporaryFolder folder;
    TrainingLog log(folder / "metrics.jsonl", 0);
    CHECK_FALSE(log.loss().has_value());
    log.add_step(result_of(1, 1), 0.5);
    log.add_step(result_of(2, 2), 0.5);
    // (0.98 * 1 + 2) / (0.98 + 1)
    CHECK(log.loss().value() == doctest::Approx(2.98 / 1.98));
    CHECK(log.loss_of_band(0).value() == doctest::Approx(2.98 / 1.98));
    CHECK_FALSE(log.loss_of_band(1).has_value());
    CHECK(log.loss_of_band(3).value() == doctest::Approx(2 * 2.98 / 1.98));
}

TEST_CASE("a log is continued at the step of the state, whatever came after it") {
    const TemporaryFolder folder;
    const auto file = folder / "metrics.jsonl";
    TrainingLog log(file, 0);
    for (int64_t step = 1; step <= 5; ++step) {
        log.add_step(result_of(step, static_cast<double>(step)), 0.5);
        log.add_validation(step, 1);
    }
    test::Bytes bytes = test::read_file(file);
    for (const std::byte byte : test::bytes_of("{\"step\": 2, \"lo")) {
        bytes.push_back(byte);
    }
    test::write_file(file, bytes);
    TrainingLog again(file, 3);
    TrainingLog expected(folder / "other.jsonl", 0);
    for (int64_t step = 1; step <= 3; ++step) {
        expected.add_step(result_of(step, static_cast<double>(step)), 0.5);
        expected.add_validation(step, 1);
    }
    CHECK(again.loss().value() == expected.loss().value());
    CHECK(again.losses().size() == 3);
    CHECK(again.validation_losses().size() == 3);
    CHECK(test::read_file(file) == test::read_file(folder / "other.jsonl"));
    CHECK(TrainingLog(file, 0).losses().empty());
    CHECK(test::read_file(file).empty());
}

TEST_CASE("the curve has a point for each loss and numbers at its axes") {
    const std::string svg = loss_curve_svg({{1, 1.0}, {2, 0.5}, {3, 0.25}}, {{0, 1.25}, {3, 0.5}});
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.find("validation loss") != std::string::npos);
    const size_t points = svg.find("points=\"");
    REQUIRE(points != std::string::npos);
    const std::string first = svg.substr(points + 8, svg.find('"', points + 8) - points - 8);
    CHECK(std::count(first.begin(), first.end(), ',') == 3);
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(loss_curve_svg({}, {}).find("nan") == std::string::npos);
}

}  // namespace
}  // namespace flux2
