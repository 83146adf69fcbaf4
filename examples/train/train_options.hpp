// The options of flux2-train. Names are those of kohya-ss/musubi-tuner where it has them; each may
// be spelled with hyphens too.
#pragma once

#include "common/options.hpp"
#include "train/trained_adapter.hpp"
#include "train/trainer.hpp"

#include <cxxopts.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// What a folder of pictures is used with; a dataset file says it itself.
struct FolderOptions {
    std::optional<ImageSize> resolution;  // unset: by the model
    bool no_bucket = false, no_upscale = false;
    int batch_size = 1, num_repeats = 1;
    std::string caption_extension = ".txt";
    std::optional<std::string> default_caption;
    std::filesystem::path control_directory;
    bool no_resize_control = false;
};

struct TrainOptions {
    ModelOptions model;
    std::filesystem::path dataset, validation_dataset;  // a folder or a TOML file
    FolderOptions folder;
    size_t validation_pictures = 0;  // held out of the dataset
    int64_t validate_every = 100;
    std::string trigger_word;
    AdapterChoice adapter;
    std::filesystem::path network_weights;  // a LoRA to go on from
    TrainerOptions trainer;
    std::optional<int64_t> max_steps, max_epochs;
    std::optional<double> warmup_share;  // of all steps, in place of warmup_steps

    std::filesystem::path output_folder = ".";
    std::string output_name = "lora";
    AdapterForm form = AdapterForm::plain;
    TensorType save_type = TensorType::f32;
    int64_t save_every = 250;
    int64_t save_last = 0;  // steps whose LoRA files are kept; 0: all
    std::optional<std::filesystem::path> resume;

    std::filesystem::path sample_prompts;
    int64_t sample_every = 0;
    bool sample_at_first = false;
    std::filesystem::path sample_model;  // folder or transformer; empty: the model that is trained

    bool plan = false, quiet = false;
};

cxxopts::Options describe_train_options();
// The arguments with options spelled as the table has them.
std::vector<std::string> with_known_spelling(const cxxopts::Options& options, int argc,
                                             char** argv);
// Throws bad_argument.
TrainOptions read_train_options(const cxxopts::ParseResult& args);

}  // namespace flux2::cli
