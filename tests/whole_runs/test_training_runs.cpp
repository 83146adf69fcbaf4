// Trainings of the bundled model that take seconds.
#include <flux2/flux2.hpp>
#include "support/train_case.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using test::joined;
using test::TrainCase;

TEST_CASE("a short training on the blueprints lowers the loss of held-out ones") {
    const TrainCase c;
    const auto result = c.run({"--dataset",
                               test::kBlueprints.string(),
                               "--resolution",
                               "64",
                               "--batch-size",
                               "2",
                               "--network-dim",
                               "8",
                               "--learning_rate",
                               "3e-3",
                               "--lr_scheduler",
                               "cosine",
                               "--lr_warmup_steps",
                               "5",
                               "--timestep_sampling",
                               "sigma",
                               "--discrete_flow_shift",
                               "4",
                               "--validation_pictures",
                               "4",
                               "--max_train_steps",
                               "30",
                               "--output_dir",
                               c.in("out"),
                               "--output_name",
                               "blueprint"});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(test::says(result, "20 pictures, 4 held out"));
    CHECK(test::says(result, "alpha 8 (equal to the rank)"));
    const std::vector<double> losses = test::validation_losses(c.folder / "out/metrics.jsonl");
    REQUIRE(losses.size() == 2);
    CHECK(losses[1] < 0.75 * losses[0]);  // 1.57 to 1.09
    const AdapterInfo info = inspect_adapter(c.folder / "out/blueprint.safetensors");
    CHECK(info.ranks == "8");
    CHECK(info.n_modules == 24);
    CHECK(info.unused.empty());
    CHECK(std::filesystem::exists(c.folder / "out/blueprint-loss.svg"));
}

TEST_CASE("a run that is killed and resumed ends in the same bytes") {
    const TrainCase c;
    const test::Arguments common = {"--max_train_steps",
                                    "14",
                                    "--save_every_n_steps",
                                    "1",
                                    "--lr_scheduler",
                                    "cosine",
                                    "--ema_decay",
                                    "0.9",
                                    "--flip_aug",
                                    "--caption_dropout_rate",
                                    "0.3",
                                    "--network_dropout",
                                    "0.2",
                                    "--gradient_accumulation_steps",
                                    "2",
                                    "--validation_pictures",
                                    "1",
                                    "--validate_every_n_steps",
                                    "5"};
    test::Arguments whole = joined(c.short_run("whole"), common);
    REQUIRE(c.run(whole).exit_code == 0);
    test::Arguments broken =
        joined(joined(c.short_run("broken"), common), {"--resume", c.in("broken")});
    // Each round waits for the file of a step, then kills the run somewhere after it.
    int n_killed = 0;
    const auto stop_after = [&](int step, const std::string& signal) {
        const std::string name = "lora-step000000" + std::string(step < 10 ? "0" : "") +
                                 std::to_string(step) + ".safetensors";
        const auto result = test::run_program("(" + c.command(broken) + " & p=$!; until [ -e " +
                                              test::quoted(c.in("broken/" + name)) +
                                              " ] || ! kill -0 $p; do sleep 0.01; done; kill -" +
                                              signal + " $p; wait $p; exit $?)");
        n_killed += result.exit_code != 0 ? 1 : 0;
        return result;
    };
    for (const int step : {1, 3, 5, 6}) {
        stop_after(step, "KILL");
    }
    const auto interrupted = stop_after(10, "INT");
    CHECK(n_killed >= 3);
    if (interrupted.exit_code != 0) {
        CHECK(interrupted.exit_code == 130);
        CHECK(interrupted.err.find("the state is kept, and --resume ") != std::string::npos);
    }
    const auto last = c.run(broken);
    CHECK(last.exit_code == 0);
    CHECK(test::says(last, "encoded before: all pictures and captions"));
    CHECK(test::says(last, "resumed after step "));
    CHECK(test::read_file(c.folder / "broken/lora.safetensors") ==
          test::read_file(c.folder / "whole/lora.safetensors"));
    CHECK(test::metrics_in(c.folder / "broken/metrics.jsonl").size() ==
          test::metrics_in(c.folder / "whole/metrics.jsonl").size());
    const auto refused = c.run(joined(broken, {"--seed", "5", "--network_alpha", "2"}));
    CHECK(refused.exit_code == 2);
    CHECK(test::says(refused, "network_alpha 4 -> 2, seed 42 -> 5"));
}

}  // namespace
}  // namespace flux2
