// The sizes of each network of FLUX.2, which determine its tensors and its graph.
#pragma once

#include <array>
#include <cstdint>

namespace flux2 {

// Sanity limit: the base of rotary embeddings must be above 1 and at most this.
constexpr double kMaxRopeTheta = 1e30;

// Of the sinusoidal embedding of a time or guidance value.
constexpr int64_t kTimeChannels = 256;

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

// Where the layers of one resolution of TAEF2 are in the original's sequence.
struct TinyStage {
    int first_block, n_blocks;
    int resample;  // the layer that leads to the next stage; 0: none
    bool pools;    // whether its blocks have pools
};
// At 1, 2, 4 and 8 times smaller than the picture, in the order of computation.
using TinyStages = std::array<TinyStage, 4>;
constexpr TinyStages kTinyEncoderStages = {
    {{1, 1, 2, false}, {3, 3, 6, false}, {7, 3, 10, false}, {11, 3, 0, true}}};
constexpr TinyStages kTinyDecoderStages = {
    {{3, 3, 7, true}, {8, 3, 12, false}, {13, 3, 17, false}, {18, 1, 0, false}}};

}  // namespace flux2
