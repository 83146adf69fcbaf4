// Translates the tensor names of checkpoints to ours: the original authors' names for transformer
// and autoencoder, llama.cpp's for the text encoder.
#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// Where a tensor of a checkpoint belongs.
struct TensorPlace {
    std::string name;  // ours
    // A fused matrix may come as several tensors, whose rows are stacked in this order.
    int stack_index = 0;
    int n_stacked = 1;
    // The upper and the lower half of the rows are swapped.
    bool swap_halves = false;
};

// The prefix that other programs add: "model.diffusion_model.", "vae.", "text_encoders.qwen3_4b.";
// empty when there is none. In a file with several parts it distinguishes them.
std::string_view prefix_of(std::string_view name);
// The name without it.
std::string_view strip_prefix(std::string_view name);

// Each takes a name without prefix; a name without a rule is returned unchanged.
TensorPlace place_transformer_tensor(std::string_view name);
TensorPlace place_text_encoder_tensor(std::string_view name);
TensorPlace place_vae_tensor(std::string_view name);
// Of a tiny autoencoder. Ours are decoder.N and encoder.N, where N counts all layers of the
// original; a name that begins with a number belongs to a file with the decoder alone.
TensorPlace place_tiny_tensor(std::string_view name);

}  // namespace flux2
