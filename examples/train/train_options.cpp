#include "train/train_options.hpp"

#include "base/check.hpp"
#include "base/comma_list.hpp"
#include "base/image_limits.hpp"
#include "base/parse_arguments.hpp"
#include "common/option_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace flux2::cli {
namespace {

void add_data_options(cxxopts::Options& options) {
    options.add_options("Data")  //
        ("d,dataset_config",
         "folder of pictures with .txt captions, or a dataset file of musubi-tuner (.toml)",
         text())  //
        ("resolution",
         "512, or 768x512: area of the pictures (default: 512x512, or the model's if less)",
         text())                                                                              //
        ("no_bucket", "crop all pictures to the resolution instead of keeping their shapes")  //
        ("bucket_no_upscale", "train smaller pictures at their own size")                     //
        ("batch_size", "pictures of a batch (default 1)", text())                             //
        ("num_repeats", "how often an epoch shows each picture (default 1)", text())          //
        ("caption_extension", "ending of caption files (default .txt)", text())               //
        ("default_caption", "caption of pictures without a file", text())                     //
        ("control_directory", "pictures shown beside the caption, found by name", text())     //
        ("no_resize_control", "these keep their size")                                        //
        ("trigger_word", "put before captions that do not contain it", text())                //
        ("caption_dropout_rate", "share of examples without caption (default 0)", text())     //
        ("flip_aug", "mirror half of the examples")                                           //
        ("validation_dataset", "pictures whose loss is measured and that are not trained",
         text())                                                                               //
        ("validation_pictures", "hold back so many pictures of the dataset for that", text())  //
        ("validate_every_n_steps", "how often (default 100)", text());
}

void add_network_options(cxxopts::Options& options) {
    options.add_options("LoRA")  //
        ("network_module", "networks.lora_flux_2 or networks.lokr (default: the first, a LoRA)",
         text())  //
        ("network_args", "factor=8: size of a LoKr's first factor (default -1: near the root)",
         cxxopts::value<std::vector<std::string>>())                                             //
        ("network_weights", "go on from this LoRA file, with its rank", text())                  //
        ("network_dim", "rank (default 16)", text())                                             //
        ("network_alpha", "scale is alpha / rank (default: the rank)", text())                   //
        ("network_dropout", "share of the values between A and B left out (default 0)", text())  //
        ("include_patterns",
         "train only matrices whose names match this regular expression "
         "(repeatable)",
         cxxopts::value<std::vector<std::string>>())  //
        ("exclude_patterns", "leave out those that match this one (repeatable)",
         cxxopts::value<std::vector<std::string>>());
}

void add_training_options(cxxopts::Options& options) {
    options.add_options("Training")                                                              //
        ("max_train_steps", "steps (default 1600)", text())                                      //
        ("max_train_epochs", "in place of steps: passes over the dataset", text())               //
        ("learning_rate", "(default 1e-4)", text())                                              //
        ("lr_scheduler", "constant, linear or cosine (default constant)", text())                //
        ("lr_warmup_steps", "steps, or a share below 1 of all (default 0)", text())              //
        ("lr_scheduler_min_lr_ratio", "share of the rate at the end (default 0)", text())        //
        ("optimizer_type", "AdamW, or AdamW8bit with states in 8 bits (default AdamW)", text())  //
        ("weight_decay", "(default 0.01)", text())                                               //
        ("max_grad_norm", "clip gradients to this norm; 0: not (default 1)", text())             //
        ("gradient_accumulation_steps", "batches of a step (default 1)", text())                 //
        ("ema_decay", "average the weights over steps, such as 0.99 (default 0: not)", text())   //
        ("seed", "of noise, order and first weights (default 42)", text())                       //
        ("timestep_sampling",
         "uniform, sigmoid, shift, flux2_shift, logsnr or sigma (default flux2_shift)", text())  //
        ("discrete_flow_shift", "of shift and sigma (default 1)", text())                        //
        ("sigmoid_scale", "(default 1)", text())                                                 //
        ("weighting_scheme", "none, sigma_sqrt, cosmap; with sigma also logit_normal, mode",
         text())                                                          //
        ("logit_mean", "of logit_normal and logsnr (default 0)", text())  //
        ("logit_std", "(default 1)", text())                              //
        ("mode_scale", "(default 1.29)", text())                          //
        ("min_timestep", "0 to 1000 (default 0)", text())                 //
        ("max_timestep", "(default 1000)", text())                        //
        ("preserve_distribution_shape", "draw levels outside of these again instead of scaling");
}

void add_output_options(cxxopts::Options& options) {
    options.add_options("Output")                                                          //
        ("output_dir", "folder (default .)", text())                                       //
        ("o,output_name", "name of the files in it (default lora)", text())                //
        ("save-format", "plain (most programs read it) or kohya (default plain)", text())  //
        ("save_precision", "float, fp16 or bf16 (default float)", text())                  //
        ("save_every_n_steps", "LoRA and state so far; 0: at the end only (default 250)",
         text())                                                                            //
        ("save_last_n_steps", "delete LoRA files older than so many steps", text())         //
        ("resume", "continue from this .state file, or the newest in this folder", text())  //
        ("sample_prompts", "file with a prompt per line; options --w --h --s --d --g --n --ci",
         text())                                                                        //
        ("sample_every_n_steps", "make pictures of them with the LoRA so far", text())  //
        ("sample_at_first", "also before the first step")                               //
        ("sample_model", "model that makes them, folder or transformer (default: the trained one)",
         text())                                             //
        ("plan", "tell memory and time, and train nothing")  //
        ("q,quiet", "only errors and warnings")              //
        ("version", "print which flux2 this is")             //
        ("h,help", "print this help");
}

void read_double(const cxxopts::ParseResult& args, const char* name, double& target) {
    if (args.count(name) > 0) {
        target = parse_double(concat("--", name), given(args, name));
    }
}

template <typename Target>
void read_count(const cxxopts::ParseResult& args, const char* name, Target& target, int least,
                int most = 1'000'000'000) {
    if (args.count(name) > 0) {
        const int value = parse_int(concat("--", name), given(args, name));
        check(value >= least && value <= most, ErrorKind::bad_argument, "--", name, " ", value,
              " is out of range; use ", least, " to ", most);
        using Value =
            std::conditional_t<std::is_same_v<Target, std::optional<int64_t>>, int64_t, Target>;
        target = static_cast<Value>(value);
    }
}

void check_share(const char* name, double value) {
    check(value >= 0 && value < 1, ErrorKind::bad_argument, "--", name, " ", value,
          " is out of range; use 0 to below 1");
}

ImageSize parse_resolution(const std::string& value) {
    const size_t x = value.find('x');
    const int width = parse_int("--resolution", value.substr(0, x));
    const int height =
        x == std::string::npos ? width : parse_int("--resolution", value.substr(x + 1));
    check(is_image_side(width) && is_image_side(height), ErrorKind::bad_argument, "--resolution ",
          value, " cannot work; use sides of ", kMinSide, " to ", kMaxSide,
          " that are multiples of ", kImageGrid);
    return {width, height};
}

void read_data_options(const cxxopts::ParseResult& args, TrainOptions& o) {
    read_path(args, "dataset_config", o.dataset);
    check(!o.dataset.empty(), ErrorKind::bad_argument,
          "there is nothing to train on; add --dataset FOLDER, pictures with captions of the same "
          "name that end in .txt");
    FolderOptions& folder = o.folder;
    if (args.count("resolution") > 0) {
        folder.resolution = parse_resolution(given(args, "resolution"));
    }
    folder.no_bucket = args.count("no_bucket") > 0;
    folder.no_upscale = args.count("bucket_no_upscale") > 0;
    read_count(args, "batch_size", folder.batch_size, 1, 1024);
    read_count(args, "num_repeats", folder.num_repeats, 1, 10000);
    read_text(args, "caption_extension", folder.caption_extension);
    read_text(args, "default_caption", folder.default_caption);
    read_path(args, "control_directory", folder.control_directory);
    folder.no_resize_control = args.count("no_resize_control") > 0;
    read_text(args, "trigger_word", o.trigger_word);
    read_double(args, "caption_dropout_rate", o.trainer.caption_dropout);
    check_share("caption_dropout_rate", o.trainer.caption_dropout);
    o.trainer.flips = args.count("flip_aug") > 0;
    read_path(args, "validation_dataset", o.validation_dataset);
    read_count(args, "validation_pictures", o.validation_pictures, 1, 10000);
    check(o.validation_dataset.empty() || o.validation_pictures == 0, ErrorKind::bad_argument,
          "one of --validation_dataset and --validation_pictures is enough; leave out the other");
    read_count(args, "validate_every_n_steps", o.validate_every, 1);
}

NetworkKind parse_network_module(const std::string& name) {
    const std::string last = name.substr(name.rfind('.') + 1);
    check(last == "lora" || last == "lora_flux_2" || last == "lokr", ErrorKind::bad_argument,
          "--network_module ", name, " is not there; networks.lora_flux_2 and networks.lokr are");
    return last == "lokr" ? NetworkKind::lokr : NetworkKind::lora;
}

void read_network_arg(const std::string& text, AdapterChoice& choice) {
    constexpr std::string_view kFactor = "factor=";
    check(text.starts_with(kFactor) && choice.kind == NetworkKind::lokr, ErrorKind::bad_argument,
          "--network_args ", text, " is not there; factor=NUMBER is, with networks.lokr");
    choice.factor = parse_int("--network_args factor", text.substr(kFactor.size()));
}

void read_network_options(const cxxopts::ParseResult& args, TrainOptions& o) {
    if (args.count("network_module") > 0) {
        o.adapter.kind = parse_network_module(given(args, "network_module"));
    }
    if (args.count("network_args") > 0) {
        for (const std::string& text : args["network_args"].as<std::vector<std::string>>()) {
            read_network_arg(text, o.adapter);
        }
    }
    read_path(args, "network_weights", o.network_weights);
    read_count(args, "network_dim", o.adapter.rank, 1, 1024);
    if (args.count("network_alpha") > 0) {
        double alpha = 0;
        read_double(args, "network_alpha", alpha);
        o.adapter.alpha = alpha;
    }
    read_double(args, "network_dropout", o.adapter.dropout);
    check_share("network_dropout", o.adapter.dropout);
    const auto read_patterns = [&](const char* name, std::vector<std::string>& target) {
        if (args.count(name) > 0) {
            target = args[name].as<std::vector<std::string>>();
        }
    };
    read_patterns("include_patterns", o.adapter.include);
    read_patterns("exclude_patterns", o.adapter.exclude);
}

void read_rate_options(const cxxopts::ParseResult& args, TrainOptions& o) {
    LearningRate& rate = o.trainer.rate;
    read_double(args, "learning_rate", rate.peak);
    check(std::isfinite(rate.peak) && rate.peak > 0 && rate.peak <= 1, ErrorKind::bad_argument,
          "--learning_rate ", rate.peak, " cannot work; use a number such as 1e-4");
    if (args.count("lr_scheduler") > 0) {
        rate.schedule = parse_rate_schedule(given(args, "lr_scheduler"));
    }
    double warmup = 0;
    read_double(args, "lr_warmup_steps", warmup);
    check(warmup >= 0 && warmup < 1e9, ErrorKind::bad_argument, "--lr_warmup_steps ", warmup,
          " is out of range; use a number of steps, or a share of them below 1");
    if (warmup > 0 && warmup < 1) {
        o.warmup_share = warmup;
    } else {
        rate.warmup_steps = std::llround(warmup);
    }
    read_double(args, "lr_scheduler_min_lr_ratio", rate.min_ratio);
    check_share("lr_scheduler_min_lr_ratio", rate.min_ratio);
}

void read_training_options(const cxxopts::ParseResult& args, TrainOptions& o) {
    TrainerOptions& trainer = o.trainer;
    read_count(args, "max_train_steps", o.max_steps, 1, 10'000'000);
    read_count(args, "max_train_epochs", o.max_epochs, 1, 1'000'000);
    check(!o.max_steps || !o.max_epochs, ErrorKind::bad_argument,
          "one of --max_train_steps and --max_train_epochs is enough; leave out the other");
    read_rate_options(args, o);
    if (args.count("optimizer_type") > 0) {
        const std::string type = to_lower(given(args, "optimizer_type"));
        trainer.optimiser.eight_bits = type == "adamw8bit";
        check(type == "adamw" || trainer.optimiser.eight_bits, ErrorKind::bad_argument,
              "--optimizer_type ", type, " is not there; AdamW and AdamW8bit are");
    }
    read_double(args, "weight_decay", trainer.optimiser.weight_decay);
    read_double(args, "max_grad_norm", trainer.max_grad_norm);
    check(trainer.max_grad_norm >= 0, ErrorKind::bad_argument, "--max_grad_norm ",
          trainer.max_grad_norm, " is below 0; 0 leaves gradients as they are");
    read_count(args, "gradient_accumulation_steps", trainer.gradient_accumulation_steps, 1, 10000);
    read_double(args, "ema_decay", trainer.ema_decay);
    check_share("ema_decay", trainer.ema_decay);
    if (args.count("seed") > 0) {
        trainer.seed = parse_seed(given(args, "seed"));
    }
    o.adapter.seed = trainer.seed;
    NoiseLevels& levels = trainer.noise_levels;
    if (args.count("timestep_sampling") > 0) {
        levels.sampling = parse_timestep_sampling(given(args, "timestep_sampling"));
    }
    if (args.count("weighting_scheme") > 0) {
        levels.weighting = parse_weighting(given(args, "weighting_scheme"));
    }
    read_double(args, "discrete_flow_shift", levels.discrete_flow_shift);
    read_double(args, "sigmoid_scale", levels.sigmoid_scale);
    read_double(args, "logit_mean", levels.logit_mean);
    read_double(args, "logit_std", levels.logit_std);
    read_double(args, "mode_scale", levels.mode_scale);
    read_double(args, "min_timestep", levels.min_timestep);
    read_double(args, "max_timestep", levels.max_timestep);
    levels.preserve_distribution_shape = args.count("preserve_distribution_shape") > 0;
    check_noise_levels(levels);
}

TensorType parse_precision(const std::string& name) {
    if (name == "fp16" || name == "float16") {
        return TensorType::f16;
    }
    if (name == "bf16" || name == "bfloat16") {
        return TensorType::bf16;
    }
    check(name == "float" || name == "fp32" || name == "float32", ErrorKind::bad_argument,
          "--save_precision ", name, " is unknown; use float, fp16 or bf16");
    return TensorType::f32;
}

void read_output_options(const cxxopts::ParseResult& args, TrainOptions& o) {
    read_path(args, "output_dir", o.output_folder);
    read_text(args, "output_name", o.output_name);
    check(!o.output_name.empty() && o.output_name.find_first_of("/\\") == std::string::npos,
          ErrorKind::bad_argument, "--output_name '", o.output_name,
          "' is no name of a file; --output_dir names the folder");
    if (args.count("save-format") > 0) {
        const std::string form = given(args, "save-format");
        check(form == "plain" || form == "kohya", ErrorKind::bad_argument, "--save-format ", form,
              " is unknown; use plain or kohya");
        o.form = form == "kohya" ? AdapterForm::kohya : AdapterForm::plain;
    }
    if (args.count("save_precision") > 0) {
        o.save_type = parse_precision(given(args, "save_precision"));
    }
    read_count(args, "save_every_n_steps", o.save_every, 0);
    read_count(args, "save_last_n_steps", o.save_last, 1);
    if (args.count("resume") > 0) {
        o.resume = given(args, "resume");
    }
    read_path(args, "sample_prompts", o.sample_prompts);
    read_count(args, "sample_every_n_steps", o.sample_every, 1);
    o.sample_at_first = args.count("sample_at_first") > 0;
    read_path(args, "sample_model", o.sample_model);
    check(o.sample_every == 0 || !o.sample_prompts.empty(), ErrorKind::bad_argument,
          "--sample_every_n_steps needs prompts; add --sample_prompts FILE");
    o.plan = args.count("plan") > 0;
    o.quiet = args.count("quiet") > 0;
}

}  // namespace

cxxopts::Options describe_train_options() {
    cxxopts::Options options("flux2-train",
                             "Trains a LoRA for a FLUX.2 model on pictures with captions.\n\n"
                             "  flux2-train -m klein-base-4b -d photos -o my-lora\n");
    options.custom_help("[options]");
    add_model_options(options);
    add_data_options(options);
    add_network_options(options);
    add_training_options(options);
    add_output_options(options);
    return options;
}

std::vector<std::string> with_known_spelling(const cxxopts::Options& options, int argc,
                                             char** argv) {
    const detail::KnownOptions known = detail::known_options(options);
    std::vector<std::string> arguments(argv, argv + argc);
    for (std::string& argument : arguments) {
        if (argument == "--") {
            break;
        }
        if (!argument.starts_with("--")) {
            continue;
        }
        const size_t end = std::min(argument.find('='), argument.size());
        const std::string name = argument.substr(2, end - 2);
        const auto option = detail::find_option(known, name == "dataset" ? "dataset_config" : name);
        if (option != known.end()) {
            argument.replace(2, end - 2, option->first);
        }
    }
    return arguments;
}

TrainOptions read_train_options(const cxxopts::ParseResult& args) {
    TrainOptions o;
    read_model_options(args, o.model);
    read_data_options(args, o);
    read_network_options(args, o);
    read_training_options(args, o);
    read_output_options(args, o);
    return o;
}

}  // namespace flux2::cli
