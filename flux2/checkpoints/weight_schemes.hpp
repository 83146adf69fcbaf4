// How each tensor of a checkpoint is stored: directly, or as codes with scales in other tensors.
// Decided for each tensor, since files mix both.
#pragma once

#include "checkpoints/recognise.hpp"
#include "checkpoints/scaled_weights.hpp"
#include "formats/tensor_source.hpp"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Whether a tensor holds no weights, but scales, markers or descriptions of others.
bool describes_weights(std::string_view name);

class WeightSchemes {
  public:
    // For the tensors of one part of the source, both borrowed. Throws unsupported, by name, for
    // schemes that this program does not read.
    WeightSchemes(const TensorSource& source, Naming naming,
                  const std::vector<const TensorInfo*>& tensors);

    // The codes of a tensor with their scales; null for a tensor that is stored directly. Throws
    // bad_file for scales that are missing or of the wrong size, unsupported for formats that this
    // program does not read.
    std::unique_ptr<const ScaledMatrix> find(const TensorInfo& tensor) const;

  private:
    struct Layer {
        std::string name;  // of the tensor without ".weight"
        const TensorInfo& codes;
        std::string format;  // ComfyUI's name; empty: unknown
        const TensorInfo* scales;
    };

    std::string file() const { return source_.path().string(); }
    const TensorInfo* attached(const std::string& layer, std::string_view suffix) const;
    const TensorInfo* find_scales(const std::string& layer) const;
    void read_layer_formats();
    void survey(const std::vector<const TensorInfo*>& tensors);
    std::string format_of(const std::string& layer) const;
    std::string comfy_format(const std::string& layer, const std::string& text) const;
    void check_format(const Layer& layer, std::string_view expected) const;
    float single_value(const TensorInfo& tensor) const;
    bool is_modelopt() const;
    bool nvfp4_is_tiled(const Layer& layer) const;
    [[noreturn]] void fail_without_scale(const Layer& layer) const;

    std::unique_ptr<ScaledMatrix> make_float8(const Layer& layer) const;
    std::unique_ptr<ScaledMatrix> make_mxfp8(const Layer& layer) const;
    std::unique_ptr<ScaledMatrix> make_nvfp4(const Layer& layer) const;
    std::unique_ptr<ScaledMatrix> make_int8(const Layer& layer) const;
    void set_plain_grid(ScaledMatrix& matrix, const TensorInfo& scales) const;
    void set_tiled_grid(ScaledMatrix& matrix, const TensorInfo& scales, int64_t block) const;
    void set_column_factors(ScaledMatrix& matrix, const Layer& layer) const;

    const TensorSource& source_;
    Naming naming_;
    std::map<std::string, std::string> formats_;  // what the header says of layers, as JSON
    // Of FP8 matrices: how many have a scale, and how those are spelled; or the marker tensor.
    int n_with_scale_ = 0;
    std::string spelling_ = ".weight_scale";
    bool marked_scaled_ = false;
};

}  // namespace flux2
