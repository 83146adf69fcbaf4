// A model part as found on disk, under our tensor names: what it is, and its tensors ready to read,
// fused and reordered where the file has them in another layout.
#pragma once

#include "store/recognise.hpp"
#include "store/tensor_source.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flux2 {

// A run of rows that lies in one piece in a file.
struct Piece {
    TensorType type = TensorType::f32;
    int64_t n_elements = 0;
    std::span<const std::byte> bytes;
};

struct ModelTensor {
    std::string name;  // ours
    Shape shape;
    std::vector<Piece> pieces;  // in the order of the rows

    // The type of all pieces; the first one's when they differ.
    TensorType type() const { return pieces.front().type; }
    bool same_type_throughout() const;
    // The stretch of n elements from element `first` on, as pieces. For block types both ends must
    // lie on block borders.
    std::vector<Piece> stretch(int64_t first, int64_t n) const;
    // The same stretch as F32 values.
    void read_f32(int64_t first, std::span<float> out) const;
};

// One component, opened and recognised by its tensor names. Move-only; owns the mapped files.
class Checkpoint {
  public:
    // Throws bad_file for anything that is not a part of FLUX.2; unsupported, saying what it is,
    // when that is known.
    static Checkpoint open(const std::filesystem::path& path);
    explicit Checkpoint(TensorSource source);

    Component component() const { return component_; }
    Naming naming() const { return naming_; }
    const TensorSource& source() const { return source_; }
    std::string file() const { return source_.path().string(); }

    const std::vector<ModelTensor>& tensors() const { return tensors_; }
    const ModelTensor* find(std::string_view name) const;
    // Throws bad_file naming the tensor when it is missing.
    const ModelTensor& get(std::string_view name) const;
    int64_t n_parameters() const;

  private:
    void collect_tensors();

    TensorSource source_;
    Component component_;
    Naming naming_;
    std::vector<ModelTensor> tensors_;
    std::unordered_map<std::string, size_t> index_;
};

}  // namespace flux2
