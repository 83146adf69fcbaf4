// The difference of two checkpoints as a LoRA (--extract-lora).
#pragma once

#include "checkpoints/checkpoint.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace flux2::convert {

struct ExtractOptions {
    int64_t rank = 32;
    int n_threads = 1;
    const std::atomic<bool>* cancel = nullptr;
    // Called with the bytes of the base that are done.
    std::function<void(uint64_t bytes)> progress;
};

// What a LoRA leaves of the differences of similar modules: ||difference - LoRA|| / ||difference||.
struct KindError {
    std::string kind;   // "double_blocks.*.img_attn.qkv"
    int n_modules = 0;  // of those that differ
    double relative_error = 0;
};

struct Extracted {
    std::vector<KindError> kinds;  // in the order of the network
    KindError all;
    std::vector<std::string> warnings;
};

// Bytes of the base, the measure of progress.
uint64_t source_bytes(const Checkpoint& base);

// Writes a LoRA that makes `tuned` of `base`, both transformers: pairs in F16 under the original
// names with the prefix diffusion_model., and differences of norms in F32. Modules without a
// difference are left out. The same inputs give the same file. Keeps the LoRA and one matrix in
// memory. Throws bad_file when the two are not of one size or hold the same weights, unsupported
// for other parts of a model.
Extracted extract_lora(const Checkpoint& base, const Checkpoint& tuned,
                       const std::filesystem::path& output, const ExtractOptions& options);

}  // namespace flux2::convert
