// Prompts of pictures that show how far a training run is: a line each, with options behind it as
// kohya-ss/musubi-tuner has them.
#pragma once

#include <flux2/flux2.hpp>
#include "train/problems.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace flux2::cli {

// Lines that are empty or begin with # are left out. --w and --h are pixels, --s steps, --d the
// seed, --g the guidance, --n the negative prompt, --ci a reference (repeatable). What is wrong is
// added to the problems with file and line.
std::vector<Request> read_sample_prompts(const std::filesystem::path& file, Problems& problems);

}  // namespace flux2::cli
