// flux2-train as users run it, on the bundled model.
#include <flux2/flux2.hpp>
#include "support/train_case.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::Arguments;
using test::joined;
using test::kBlueprints;
using test::kBundledModel;
using test::metrics_in;
using test::says;
using test::TrainCase;
using test::validation_losses;

TEST_CASE("only the last files are kept, samples are made, kohya's form is written") {
    const TrainCase c;
    test::write_file(c.folder / "prompts.txt",
                     "# two\na red house --w 64 --h 64 --s 1 --d 7\na boat --w 64 --h 64 --s 1\n");
    const auto result =
        c.run(joined(c.short_run("out"),
                     {"--max_train_epochs", "4", "--save_every_n_steps", "2", "--save_last_n_steps",
                      "4", "--save-format", "kohya", "--trigger_word", "blueprint",
                      "--sample_prompts", c.in("prompts.txt"), "--sample_every_n_steps", "4",
                      "--sample_model", (kBundledModel / "flux2-tiny-bf16.gguf").string()}));
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(c.folder / "out")) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    CHECK(names == std::vector<std::string>{
                       "lora-loss.svg", "lora-step00000006.safetensors", "lora-step00000006.state",
                       "lora-step00000008.safetensors", "lora-step00000008.state",
                       "lora.safetensors", "metrics.jsonl", "sample"});
    for (const char* name : {"lora_00000004_00.png", "lora_00000008_01.png"}) {
        CHECK(load_image(c.folder / "out/sample" / name).width == 64);
    }
    const AdapterInfo info = inspect_adapter(c.folder / "out/lora.safetensors");
    CHECK(info.dialect == "kohya");
    bool has_trigger_word = false;
    for (const auto& [key, value] : info.facts) {
        has_trigger_word = has_trigger_word || (key == "trigger words" && value == "blueprint");
    }
    CHECK(has_trigger_word);
}

TEST_CASE("a run that goes on from a LoRA begins with its loss, rank and alpha") {
    const TrainCase c;
    const test::Arguments common = {"-d",
                                    c.few_pictures(),
                                    "--resolution",
                                    "64",
                                    "--validation_pictures",
                                    "1",
                                    "--max_train_steps",
                                    "3",
                                    "--learning_rate",
                                    "1e-2"};
    REQUIRE(c.run(joined(common, {"--network_dim", "4", "--network_alpha", "2", "--save-format",
                                  "kohya", "--output_dir", c.in("first")}))
                .exit_code == 0);
    const test::Arguments again = joined(
        common,
        {"--network_weights", c.in("first/lora.safetensors"), "--output_dir", c.in("second")});
    const auto result = c.run(again);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(says(result, "rank 4, alpha 2, 24 matrices"));
    const std::vector<double> before = validation_losses(c.folder / "first/metrics.jsonl");
    const std::vector<double> after = validation_losses(c.folder / "second/metrics.jsonl");
    REQUIRE(before.size() == 2);
    REQUIRE(after.size() == 2);
    CHECK(before[0] != before[1]);
    CHECK(after[0] == doctest::Approx(before[1]).epsilon(1e-6));
    // The file is one of the settings, by its contents.
    fs::copy_file(c.folder / "second/lora.safetensors", c.folder / "first/lora.safetensors",
                  fs::copy_options::overwrite_existing);
    const auto other = c.run(joined(again, {"--resume", c.in("second")}));
    CHECK(other.exit_code == 2);
    CHECK(says(other, "network_weights lora.safetensors "));
}

TEST_CASE("a LoKr is trained with states in 8 bits, saved and resumed") {
    const TrainCase c;
    const test::Arguments common = joined(
        c.short_run("out"), {"--network_module", "networks.lokr", "--network_args", "factor=8",
                             "--save_every_n_steps", "1", "--optimizer_type", "AdamW8bit"});
    REQUIRE(c.run(joined(common, {"--max_train_steps", "2"})).exit_code == 0);
    const auto result = c.run(joined(common, {"--max_train_steps", "3", "--resume", c.in("out")}));
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(says(result, "LoKr: rank 4"));
    CHECK(says(result, "resumed after step 2"));
    test::Arguments whole = joined(common, {"--max_train_steps", "3"});
    *std::find(whole.begin(), whole.end(), c.in("out")) = c.in("whole");
    REQUIRE(c.run(whole).exit_code == 0);
    CHECK(test::read_file(c.folder / "out/lora.safetensors") ==
          test::read_file(c.folder / "whole/lora.safetensors"));
    const AdapterInfo info = inspect_adapter(c.folder / "out/lora.safetensors");
    CHECK(info.kinds == "LoKr");
    CHECK(info.n_modules == 24);
}

TEST_CASE("controls are seen as the variant of the model sees references") {
    const TrainCase c;
    std::vector<double> losses;
    for (const char* variant : {"base", "kv"}) {
        const auto result = c.run(joined(
            c.short_run(variant),
            {"--control_directory", c.in("few"), "--max_train_steps", "1", "--variant", variant,
             "--diffusion-model", (kBundledModel / "flux2-tiny-base-q6_k.gguf").string()}));
        CAPTURE(result.err);
        REQUIRE(result.exit_code == 0);
        losses.push_back(metrics_in(c.folder / variant / "metrics.jsonl")[0]["loss"]);
    }
    CHECK(std::abs(losses[1] - losses[0]) > 1e-3 * losses[0]);
}

TEST_CASE("a run that cannot write ends with the state it had") {
    const TrainCase c;
    REQUIRE(c.run(joined(c.short_run("out"), {"--max_train_steps", "2"})).exit_code == 0);
    const test::Arguments longer =
        joined(c.short_run("out"), {"--max_train_steps", "4", "--resume", c.in("out")});
    // Files of at most 256 KB; states are larger.
    const auto result = test::run_program("trap '' XFSZ; ulimit -f 256; " + c.command(longer));
    CAPTURE(result.err);
    CHECK(result.exit_code != 0);
    CHECK(says(result, "--resume " + c.in("out/lora-step00000002.state")));
    CHECK(c.run(longer).exit_code == 0);
    if (fs::exists("/dev/full")) {
        fs::create_directory(c.folder / "full");
        fs::create_symlink("/dev/full", c.folder / "full/metrics.jsonl");
        CHECK(c.run(joined(c.short_run("full"), {"--max_train_steps", "2"})).exit_code == 4);
    }
}

TEST_CASE("a run is not resumed with another model of the same name and size") {
    const TrainCase c;
    const fs::path model = c.folder / "model.gguf";
    fs::copy_file(kBundledModel / "flux2-tiny-bf16.gguf", model);
    const Arguments run = joined(c.short_run("out"), {"--diffusion-model", model.string()});
    const auto first = c.run(joined(run, {"--max_train_steps", "1"}));
    REQUIRE_MESSAGE(first.exit_code == 0, first.err);
    const Arguments again = joined(run, {"--max_train_steps", "2", "--resume", c.in("out")});
    test::Bytes bytes = test::read_file(model);
    for (size_t i = bytes.size() / 2; i < bytes.size(); i += 64) {
        bytes[i] ^= std::byte{1};  // the lowest bit of a weight
    }
    test::write_file(model, bytes);
    const auto other = c.run(again);
    CHECK(other.exit_code == 2);
    CHECK(says(other, "diffusion-model model.gguf of "));
    for (size_t i = bytes.size() / 2; i < bytes.size(); i += 64) {
        bytes[i] ^= std::byte{1};
    }
    test::write_file(model, bytes);
    const auto same = c.run(again);
    CHECK(same.exit_code == 0);
    CHECK(says(same, "resumed after step 1"));
}

TEST_CASE("a loss that is not finite ends the run with the last good state") {
    const TrainCase c;
    const auto result =
        c.run(joined(c.short_run("out"), {"--max_train_steps", "30", "--learning_rate", "1",
                                          "--max_grad_norm", "0", "--network_alpha", "1e30"}));
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(says(result, "begin again with a lower learning_rate"));
    // The first step is fine, since B is zero; the second is not.
    CHECK(says(result, "--resume " + c.in("out/lora-step00000001.state")));
    CHECK(fs::exists(c.folder / "out/lora-step00000001.state"));
}

TEST_CASE("memory and time are told beforehand, and a distilled base is warned about") {
    const TrainCase c;
    auto result = c.run(joined(c.short_run("out"), {"--plan"}));
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("largest example: 16 image, 0 reference and 64 text tokens") == 0);
    CHECK(result.out.find("for 1600 steps with 3200 examples") != std::string::npos);
    CHECK_FALSE(fs::exists(c.folder / "out"));
    CHECK_FALSE(says(result, "distilled"));
    result = c.run(joined(c.short_run("out"), {"--plan", "--diffusion-model",
                                               (kBundledModel / "flux2-tiny-bf16.gguf").string()}));
    CHECK(says(result, "is a distilled model"));
}

TEST_CASE("errors in dataset files have line numbers") {
    const TrainCase c;
    test::write_file(c.folder / "broken.toml", "[general]\nresolution = [256,\n");
    auto result = c.run({"--dataset_config", c.in("broken.toml")});
    if (says(result, "this build reads no TOML")) {
        CHECK(result.exit_code == 3);
        return;
    }
    CHECK(result.exit_code == 3);
    CHECK(says(result, "broken.toml:"));
    test::write_file(c.folder / "wrong.toml",
                     "[general]\n"
                     "batch_size = \"two\"\n"
                     "captoin_extension = \".txt\"\n"
                     "[[datasets]]\n"
                     "image_directory = \"nowhere\"\n"
                     "num_repeats = 0\n"
                     "[[datasets]]\n"
                     "video_directory = \"v\"\n"
                     "[other]\n");
    result = c.run({"--dataset_config", c.in("wrong.toml")});
    CAPTURE(result.err);
    CHECK(result.exit_code == 3);
    CHECK(says(result, "7 problems"));
    for (const char* piece : {"wrong.toml:2: batch_size", "wrong.toml:3: the key captoin_extension",
                              "nowhere: the folder", "wrong.toml:6: num_repeats is 0",
                              "wrong.toml:7: a dataset names one of",
                              "wrong.toml:8: the key video_directory", "wrong.toml:9: other"}) {
        CHECK_MESSAGE(says(result, piece), piece);
    }
}

TEST_CASE("a dataset file with several sets is trained") {
    const TrainCase c;
    c.few_pictures();
    test::write_file(c.folder / "list.jsonl",
                     "{\"image_path\": \"few/00.png\", \"caption\": \"one\", \"control_path\": "
                     "\"few/01.png\"}\n");
    test::write_file(c.folder / "sets.toml",
                     "[general]\nresolution = [64, 64]\nbatch_size = 2\nenable_bucket = true\n"
                     "[[datasets]]\nimage_directory = \"few\"\nnum_repeats = 2\n"
                     "[[datasets]]\nimage_jsonl_file = \"list.jsonl\"\ncache_directory = \"" +
                         c.in("own") + "\"\n");
    const auto result = c.run({"--dataset_config", c.in("sets.toml"), "--max_train_epochs", "1",
                               "--network_dim", "2", "--output_dir", c.in("out")});
    CAPTURE(result.err);
    if (says(result, "this build reads no TOML")) {
        CHECK(result.exit_code == 3);
        return;
    }
    CHECK(result.exit_code == 0);
    CHECK(says(result, "dataset: 5 pictures"));
    CHECK(says(result, "training: 5 steps"));  // four batches of the first, one of the second
    CHECK(fs::exists(c.folder / "own"));
}

TEST_CASE("bad data and bad options are refused before anything is written") {
    const TrainCase c;
    fs::create_directory(c.folder / "empty");
    const auto refused = [&](const test::Arguments& arguments, int code, const std::string& words) {
        CAPTURE(words);
        const auto result = c.run(joined(arguments, {"--output_dir", c.in("none")}));
        CAPTURE(result.err);
        CHECK(result.exit_code == code);
        CHECK(says(result, words));
        CHECK_FALSE(fs::exists(c.folder / "none"));
    };
    const std::string data = kBlueprints.string();
    refused({"-d", c.in("empty")}, 3, "there are no pictures in it");
    refused({"-d", c.in("absent")}, 3, "cannot be read");
    refused({}, 2, "--dataset FOLDER");
    refused({"-d", data, "--network_dim", "0"}, 2, "--network_dim 0");
    refused({"-d", data, "--network_module", "networks.loha"}, 2, "networks.loha is not there");
    refused({"-d", data, "--network_args", "factor=8"}, 2, "with networks.lokr");
    refused({"-d", data, "--optimizer_type", "lion"}, 2, "--optimizer_type lion");
    refused({"-d", data, "--network_dropout", "1"}, 2, "--network_dropout 1");
    refused({"-d", data, "--timestep-sampling", "x"}, 2, "flux2_shift");
    refused({"-d", data, "--max_train_steps", "3", "--max_train_epochs", "1"}, 2, "is enough");
    refused({"-d", data, "--lr_warmup_steps", "20", "--max_train_steps", "10"}, 2,
            "--lr_warmup_steps 20");
    refused({"-d", data, "--sample_every_n_steps", "5"}, 2, "--sample_prompts");
    refused({"-d", data, "--resolution", "100"}, 2, "--resolution 100");
    refused({"-d", data, "--validation_pictures", "24"}, 2, "nothing to train on");
    refused({"-d", data, "--exclude_patterns", "("}, 2, "(");
    test::write_file(c.folder / "prompts.txt", "a house --q 3\n");
    refused({"-d", data, "--sample_prompts", c.in("prompts.txt")}, 3, "prompts.txt:1: ");
}

}  // namespace
}  // namespace flux2
