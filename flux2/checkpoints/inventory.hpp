// The expected tensors of a checkpoint: the sizes of its network are read from the shapes of a few
// tensors, and every tensor that follows from them must be present. No sizes are built in, so
// models of any size work.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "networks/sizes.hpp"
#include "networks/tensor_list.hpp"

#include <string>
#include <vector>

namespace flux2 {

TextFamily text_family(const Checkpoint& text_encoder);

// Each throws bad_file, naming the tensor, when one is missing or has a shape that makes no sense.
// Blocks are counted up to the last that has any tensor, or further when the file's keys or, in a
// diffusers folder, its configuration say so.
TransformerSizes read_transformer_sizes(const Checkpoint& checkpoint);
// No shape shows Mistral's head size; it comes from the file's keys or its configuration.
TextEncoderSizes read_text_encoder_sizes(const Checkpoint& checkpoint);
VaeSizes read_vae_sizes(const Checkpoint& checkpoint);
TinyAutoencoderSizes read_tiny_autoencoder_sizes(const Checkpoint& checkpoint);

// Reads the sizes of whatever the checkpoint is, checks every tensor against the inventory, and
// returns the expected tensors that are there. Throws bad_file on the first that is missing or has
// another shape (a trailing or leading dimension of 1 apart).
std::vector<ExpectedTensor> check_inventory(const Checkpoint& checkpoint);

// Tensors that belong to no network part, such as training counters.
std::vector<std::string> unexpected_tensors(const Checkpoint& checkpoint,
                                            const std::vector<ExpectedTensor>& expected);

}  // namespace flux2
