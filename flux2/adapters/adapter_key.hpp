// Keys of adapter files: every trainer's spelling of a module and of what a tensor is to it.
#pragma once

#include "adapters/adapter_module.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace flux2 {

// A key in two pieces: "lora_unet_double_blocks_0_img_attn_qkv" and ".lora_down.weight".
struct AdapterKey {
    std::string_view stem;
    // Unset when this tensor has no place in a module here; `reason` says why.
    std::optional<AdapterRole> role;
    const char* reason = nullptr;
    // No other kind of file has such keys; ".alpha" and the like do not tell.
    bool decisive = false;
};

// Nothing for a suffix that no known kind of adapter has.
std::optional<AdapterKey> split_adapter_key(std::string_view key);

// The suffix that this role usually has, without the dot: "lora_down".
const char* to_string(AdapterRole role);

// Rows of a tensor of ours.
struct AdapterTarget {
    Part part = Part::transformer;
    std::string tensor;
    int share = 0, n_shares = 1;  // as in AdapterModule
    bool swap_halves = false;
};

// Nothing when neither the transformer nor the text encoder has such a module.
std::optional<AdapterTarget> find_adapter_target(std::string_view stem);

// Whether the stem is a module that FLUX.1 has and FLUX.2 does not.
bool is_flux1_module(std::string_view stem);

// Whose names these are: "kohya", "OneTrainer", "LyCORIS", "peft", "ComfyUI", "diffusers",
// "llama.cpp", "original".
std::string adapter_dialect(std::string_view stem);

}  // namespace flux2
