// The LoRA that is being trained: a pair of low rank for every chosen matrix of a transformer, all
// values in one array, so that an optimiser sees nothing but numbers.
#pragma once

#include "formats/tensor_type.hpp"
#include "networks/sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// One pair: y = W x + scale * B (A x).
struct TrainedModule {
    std::string name;  // of its matrix as the original has it, without ".weight"
    int64_t n_in = 0, n_out = 0;
    size_t a = 0;  // where A begins among the parameters: rank rows of n_in
    size_t b = 0;  // where B begins: n_out rows of rank
};

constexpr int64_t kUsualRank = 16;

// Which pairs there are.
struct AdapterChoice {
    std::optional<int64_t> rank = std::nullopt;  // unset: kUsualRank
    std::optional<double> alpha = std::nullopt;  // the scale is alpha / rank; unset: the rank
    // Regular expressions (ECMAScript) that are searched in names of matrices. Without `include`
    // all matrices of the blocks are chosen. It may also name img_in, txt_in and
    // final_layer.linear; no others outside of the blocks can be trained.
    std::vector<std::string> include = {};
    std::vector<std::string> exclude = {};
    // Without expressions: the matrices of these names, of those that can be trained; empty: all
    // of the blocks.
    std::set<std::string> matrices = {};
    uint64_t seed = 0;  // of the first values of A; B begins at zero
    // The share of the values between A and B that an example leaves out while it is trained.
    double dropout = 0;
};

// How files spell it.
enum class AdapterForm {
    plain,  // diffusion_model. + original names, lora_A and lora_B, the scale in lora_B: read by
            // most programs
    kohya,  // lora_unet_ + names with underscores, lora_down, lora_up and alpha
};

class TrainedAdapter {
  public:
    // A is uniform within 1 / sqrt(n_in), as PyTorch initialises linear layers. Throws bad_argument
    // for a rank, an alpha or a dropout that make no sense, a broken expression, one that matches
    // no matrix, and when no matrix is left.
    TrainedAdapter(const TransformerSizes& sizes, const AdapterChoice& choice);

    const std::vector<TrainedModule>& modules() const { return modules_; }
    int64_t rank() const { return rank_; }
    double alpha() const { return alpha_; }
    double dropout() const { return dropout_; }
    float scale() const { return static_cast<float>(alpha_ / static_cast<double>(rank_)); }
    // The values of all modules.
    std::span<float> parameters() { return parameters_; }
    std::span<const float> parameters() const { return parameters_; }

    // Writes a safetensors file atomically, in F32, F16 or BF16.
    void write(const std::filesystem::path& path, AdapterForm form,
               const std::map<std::string, std::string>& metadata,
               TensorType type = TensorType::f32) const;

  private:
    void draw(uint64_t seed);

    int64_t rank_;
    double alpha_;
    double dropout_;
    std::vector<TrainedModule> modules_;
    std::vector<float> parameters_;
};

}  // namespace flux2
