// Training that goes on from a LoRA file.
#pragma once

#include "networks/sizes.hpp"
#include "train/trained_adapter.hpp"

#include <filesystem>
#include <string>

namespace flux2 {

// The adapter with the values of a file of any dialect. Its rank is that of the file, the largest
// where matrices have different ones; q, k and v apart become a pair of their fused matrix. What
// `choice` leaves open is the file's too: alpha, and without patterns which matrices there are. The
// effect of the file stays the same with any alpha. Pairs beyond those of the file, and rows of A
// beyond their ranks, begin as in a new adapter. `network` names the model in messages. Throws what
// AdapterFile and AdapterSet do, unsupported for changes other than pairs and for those of other
// parts of the model, bad_argument for another rank and for matrices that are not trained.
TrainedAdapter continue_adapter(const std::filesystem::path& file, const TransformerSizes& sizes,
                                const std::string& network, AdapterChoice choice);

}  // namespace flux2
