// The LoRA or LoKr that is being trained: a few small matrices for every chosen matrix of a
// transformer, all values in one array, so that an optimiser sees nothing but numbers.
#pragma once

#include "formats/safetensors.hpp"
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

enum class NetworkKind {
    lora,  // y = W x + scale * B A x
    lokr,  // y = W x + scale * (W1 (x) W2) x, a Kronecker product; W2 is B A, or whole
};

// A matrix among the parameters: n_out rows of n_in. Without rows there is none.
struct TrainedMatrix {
    size_t first = 0;
    int64_t n_in = 0, n_out = 0;

    bool exists() const { return n_out > 0; }
    size_t size() const { return static_cast<size_t>(n_in * n_out); }
    size_t end() const { return first + size(); }
};

// What is trained beside one matrix.
struct TrainedModule {
    std::string name;  // of its matrix as the original has it, without ".weight"
    int64_t n_in = 0, n_out = 0;
    TrainedMatrix a, b;  // a LoKr's second factor without B is A itself
    TrainedMatrix w1;    // of a LoKr alone
};

constexpr int64_t kUsualRank = 16;

// Which modules there are.
struct AdapterChoice {
    NetworkKind kind = NetworkKind::lora;
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
    uint64_t seed = 0;  // of the first values
    // The share of the values between A and B that an example leaves out while it is trained.
    double dropout = 0;
    // Of LoKr: rows and columns of W1, where it divides those of the matrix; else, and with -1,
    // what comes nearest to their square roots.
    int64_t factor = -1;
};

// How files spell it.
enum class AdapterForm {
    plain,  // diffusion_model. + original names, lora_A and lora_B, the scale in lora_B, or in
            // LyCORIS's lokr_w1: read by most programs
    kohya,  // lora_unet_ + names with underscores, lora_down, lora_up and alpha, or LyCORIS's names
};

class TrainedAdapter {
  public:
    // Of a LoRA, A begins uniform within 1 / sqrt(n_in), as PyTorch initialises linear layers, and
    // B at zero; of a LoKr, W1 and B like that, and A at zero. Throws bad_argument
    // for a rank, an alpha, a dropout or a factor that make no sense, a broken expression, one that
    // matches no matrix, and when no matrix is left.
    TrainedAdapter(const TransformerSizes& sizes, const AdapterChoice& choice);

    const std::vector<TrainedModule>& modules() const { return modules_; }
    NetworkKind kind() const { return kind_; }
    int64_t factor() const { return factor_; }
    int64_t rank() const { return rank_; }
    double alpha() const { return alpha_; }
    double dropout() const { return dropout_; }
    float scale() const { return static_cast<float>(alpha_ / static_cast<double>(rank_)); }
    // Of a module: 1 where a LoKr's second factor is whole and has no rank.
    float scale(const TrainedModule& module) const { return module.b.exists() ? scale() : 1.0f; }
    // The values of all modules.
    std::span<float> parameters() { return parameters_; }
    std::span<const float> parameters() const { return parameters_; }

    // Writes a safetensors file atomically, in F32, F16 or BF16.
    void write(const std::filesystem::path& path, AdapterForm form,
               const std::map<std::string, std::string>& metadata,
               TensorType type = TensorType::f32) const;

  private:
    void add_module(const std::string& name, int64_t n_in, int64_t n_out);
    void draw(uint64_t seed);
    // Times a factor, as a tensor of a file.
    EncodedTensor encoded(const std::string& name, const TrainedMatrix& matrix, float factor,
                          TensorType type) const;

    NetworkKind kind_;
    int64_t factor_;
    int64_t rank_;
    double alpha_;
    double dropout_;
    std::vector<TrainedModule> modules_;
    std::vector<float> parameters_;
};

}  // namespace flux2
