// One part of a model in its files: which part it is, and its tensors under our names, fused and
// reordered if the file has another layout.
#pragma once

#include "checkpoints/recognise.hpp"
#include "checkpoints/scaled_weights.hpp"
#include "checkpoints/weight_schemes.hpp"
#include "formats/tensor_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace flux2 {

// Rows that are contiguous in a file.
struct Piece {
    TensorType type = TensorType::f32;
    int64_t n_elements = 0;
    std::span<const std::byte> bytes;
    // For types with scales in other tensors: the whole matrix, and the first element in it.
    const ScaledMatrix* scaled = nullptr;
    int64_t first = 0;
};

struct ModelTensor {
    std::string name;  // ours
    Shape shape;
    std::vector<Piece> pieces;  // in the order of the rows

    // The type of all pieces; the first one's when they differ.
    TensorType type() const { return pieces.front().type; }
    bool same_type_throughout() const;
    // The slice of n elements from element `first` on, as pieces. For block types both ends must be
    // at block boundaries.
    std::vector<Piece> slice(int64_t first, int64_t n) const;
    // The same slice as F32 values.
    void read_f32(int64_t first, std::span<float> out) const;
};

// One part, opened and recognised by its tensor names. Move-only; owns the mapped files.
class Checkpoint {
  public:
    // Opens the wanted part of a file; the first part if the file does not have it or none is
    // wanted. Throws bad_file for anything that is not a part of FLUX.2; unsupported, saying what
    // it is, when that is known.
    static Checkpoint open(const std::filesystem::path& path,
                           std::optional<Part> wanted = std::nullopt);
    // Every part of a file.
    static std::vector<Checkpoint> open_all(const std::filesystem::path& path);
    explicit Checkpoint(TensorSource source, std::optional<Part> wanted = std::nullopt);

    Part part() const { return part_; }
    Naming naming() const { return naming_; }
    const TensorSource& source() const { return source_; }
    std::string file() const { return source_.path().string(); }
    // All parts that the file holds, this one among them.
    const std::vector<Part>& parts_of_file() const { return parts_of_file_; }

    const std::vector<ModelTensor>& tensors() const { return tensors_; }
    const ModelTensor* find(std::string_view name) const;
    // Throws bad_file naming the tensor when it is missing.
    const ModelTensor& get(std::string_view name) const;
    int64_t n_parameters() const;
    // Of a text encoder: Qwen3 normalises queries and keys, Mistral does not.
    bool normalises_queries() const;

  private:
    struct StackedTensors;
    std::vector<const TensorInfo*> tensors_of(const RecognisedPart& part) const;
    void collect_tensors(const RecognisedPart& part);
    void interleave_queries_and_keys();
    ModelTensor assemble(const std::string& name, const StackedTensors& stacked,
                         const WeightSchemes& schemes);

    TensorSource source_;
    Part part_;
    Naming naming_;
    std::vector<Part> parts_of_file_;
    std::vector<std::unique_ptr<const ScaledMatrix>> scaled_;
    std::vector<ModelTensor> tensors_;
    std::unordered_map<std::string, size_t> index_;
};

}  // namespace flux2
