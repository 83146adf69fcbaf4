// What a FLUX.2 part consists of: its sizes, read off the shapes of a few tensors, and the list of
// tensors that follows from them. Sizes are never constants: files of any size are welcome.
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

// Above it, and at 1 and below, the base of rotary embeddings makes no sense; no model comes near.
constexpr double kMaxRopeTheta = 1e30;

struct TransformerSizes {
    int64_t hidden = 0;
    int64_t head_dim = 0;
    int64_t mlp = 0;         // inner width of the gated MLPs
    int64_t text_width = 0;  // of the text features
    int64_t channels = 0;    // of a latent token
    int64_t n_double = 0;
    int64_t n_single = 0;
    bool guidance = false;       // takes the guidance value as an input (dev)
    double rope_theta = 2000.0;  // base of the frequencies of positions; the file's key may differ
};

// The language models that FLUX.2 reads prompts with: klein's and dev's.
enum class TextFamily { qwen3, mistral };

struct TextEncoderSizes {
    TextFamily family = TextFamily::qwen3;
    int64_t hidden = 0;
    int64_t ffn = 0;
    int64_t head_dim = 0;
    int64_t n_head = 0;
    int64_t n_head_kv = 0;
    int64_t n_layers = 0;
    int64_t vocabulary = 0;
};

struct VaeSizes {
    static constexpr int kLevels = 4;

    int64_t latent_channels = 0;
    std::array<int64_t, kLevels> encoder_widths = {};
    std::array<int64_t, kLevels> decoder_widths = {};
};

// TAEF2.
struct TinyAutoencoderSizes {
    int64_t latent_channels = 0;
    int64_t width = 0;         // of nearly all layers
    int64_t pool_width = 0;    // inside the pools at the lowest resolution
    bool has_encoder = false;  // files with the decoder alone are common
};

TextFamily text_family(const Checkpoint& text_encoder);

// Each throws bad_file, naming the tensor, when one is missing or has a shape that makes no sense.
// Blocks are counted up to the last that has any tensor, or further when the file's keys or, in a
// diffusers folder, its configuration say so.
TransformerSizes read_transformer_sizes(const Checkpoint& checkpoint);
// Mistral's head size is in no shape; it comes from the file's keys or its configuration.
TextEncoderSizes read_text_encoder_sizes(const Checkpoint& checkpoint);
VaeSizes read_vae_sizes(const Checkpoint& checkpoint);
TinyAutoencoderSizes read_tiny_autoencoder_sizes(const Checkpoint& checkpoint);

struct ExpectedTensor {
    std::string name;
    Shape shape;
    bool required = true;
};

std::vector<ExpectedTensor> inventory(const TransformerSizes& sizes);
std::vector<ExpectedTensor> inventory(const TextEncoderSizes& sizes);
std::vector<ExpectedTensor> inventory(const VaeSizes& sizes);
std::vector<ExpectedTensor> inventory(const TinyAutoencoderSizes& sizes);

// Reads the sizes of whatever the checkpoint is, checks every tensor against the inventory, and
// returns the expected tensors that are there. Throws bad_file on the first that is missing or has
// another shape (a trailing or leading dimension of 1 apart).
std::vector<ExpectedTensor> check_inventory(const Checkpoint& checkpoint);

// Tensors that belong to no network part, such as training counters.
std::vector<std::string> unexpected_tensors(const Checkpoint& checkpoint,
                                            const std::vector<ExpectedTensor>& expected);

}  // namespace flux2
