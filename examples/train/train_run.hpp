// A whole run of flux2-train, from options to the finished LoRA.
#pragma once

#include "train/train_options.hpp"

namespace flux2::cli {

// Everything is checked before anything is encoded or trained. Once cancel_requested is true, the
// state is written and cancelled is thrown.
void train(TrainOptions options);

}  // namespace flux2::cli
