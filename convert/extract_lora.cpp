#include "extract_lora.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"
#include "checkpoints/inventory.hpp"
#include "formats/safetensors.hpp"
#include "low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string_view>

namespace flux2::convert {
namespace {

constexpr std::string_view kPrefix = "diffusion_model.";
// Rounds ten times finer than BF16; the factors' values are far from the ends of its range.
constexpr TensorType kPairType = TensorType::f16;

// Sums of squares of differences, and of what the LoRA leaves of them.
struct Squares {
    int n_modules = 0;
    double difference = 0;
    double left = 0;

    void add(const Squares& other) {
        n_modules += other.n_modules;
        difference += other.difference;
        left += other.left;
    }
    KindError as_error(const std::string& kind) const {
        return {kind, n_modules, difference > 0 ? std::sqrt(left / difference) : 0};
    }
};

// "double_blocks.*.img_attn.qkv" of "double_blocks.3.img_attn.qkv.weight".
std::string kind_of(const std::string& tensor) {
    std::string kind;
    for (size_t begin = 0; begin < tensor.size();) {
        const size_t end = std::min(tensor.find('.', begin), tensor.size());
        const std::string word = tensor.substr(begin, end - begin);
        // Of "img_mlp.0" and "adaLN_modulation.1" the number is part of the name.
        kind += kind.ends_with("_blocks.") ? "*" : word;
        kind += end < tensor.size() ? "." : "";
        begin = end + 1;
    }
    return kind.ends_with(".weight") ? kind.substr(0, kind.size() - 7) : kind;
}

std::vector<float> read_whole(const ModelTensor& tensor, const std::string& file) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
    tensor.read_f32(0, values);
    const size_t i = find_not_finite(values);
    check(i == values.size(), ErrorKind::bad_file, file, ": tensor ", tensor.name,
          " holds a value that is no finite number; the file is broken, download it again");
    return values;
}

std::vector<std::byte> encode(TensorType type, std::span<const float> values) {
    std::vector<std::byte> bytes(data_bytes(type, static_cast<int64_t>(values.size())));
    from_f32(type, values, static_cast<int64_t>(values.size()), bytes);
    return bytes;
}

std::vector<float> decode(TensorType type, std::span<const std::byte> bytes, size_t n) {
    std::vector<float> values(n);
    to_f32(type, bytes, values);
    return values;
}

// Makes the tensors of a LoRA, module after module.
class Extractor {
  public:
    Extractor(const Checkpoint& base, const Checkpoint& tuned, const ExtractOptions& options)
        : base_(base), tuned_(tuned), options_(options) {}

    void add(const ExpectedTensor& tensor) {
        const std::vector<float> difference = subtract(tensor.name);
        Squares squares;
        for (const float value : difference) {
            squares.difference += static_cast<double>(value) * static_cast<double>(value);
        }
        if (squares.difference > 0) {
            squares.n_modules = 1;
            squares.left = tensor.shape.n_dims < 2 ? add_vector(tensor, difference)
                                                   : add_matrix(tensor, difference);
            kind(kind_of(tensor.name)).add(squares);
        }
    }

    const std::vector<EncodedTensor>& tensors() const { return tensors_; }
    Extracted result() const {
        Extracted extracted;
        Squares all;
        for (const auto& [name, squares] : kinds_) {
            extracted.kinds.push_back(squares.as_error(name));
            all.add(squares);
        }
        extracted.all = all.as_error("all");
        return extracted;
    }

  private:
    Squares& kind(const std::string& name) {
        const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                        [&](const auto& entry) { return entry.first == name; });
        return found != kinds_.end() ? found->second : kinds_.emplace_back(name, Squares()).second;
    }

    std::vector<float> subtract(const std::string& name) const {
        std::vector<float> difference = read_whole(tuned_.get(name), tuned_.file());
        const std::vector<float> before = read_whole(base_.get(name), base_.file());
        for (size_t i = 0; i < difference.size(); ++i) {
            difference[i] -= before[i];
        }
        return difference;
    }

    // Each returns the squares that are left of the difference.
    double add_vector(const ExpectedTensor& tensor, const std::vector<float>& difference) {
        tensors_.push_back({std::string(kPrefix) + tensor.name + ".diff",
                            TensorType::f32,
                            {tensor.shape.ne[0]},
                            encode(TensorType::f32, difference)});
        return 0;
    }

    double add_matrix(const ExpectedTensor& tensor, const std::vector<float>& difference) {
        const int64_t columns = tensor.shape.ne[0], rows = tensor.shape.ne[1];
        const MatrixView matrix = {difference, rows, columns};
        LowRankPair pair = nearest_of_rank(matrix, options_.rank, options_.n_threads);
        const std::string module =
            std::string(kPrefix) + tensor.name.substr(0, tensor.name.size() - 7);
        const auto store = [&](const char* name, std::vector<int64_t> shape,
                               std::vector<float>& values) {
            tensors_.push_back(
                {module + name, kPairType, std::move(shape), encode(kPairType, values)});
            values = decode(kPairType, tensors_.back().bytes, values.size());
        };
        store(".lora_A.weight", {pair.rank, columns}, pair.down);
        store(".lora_B.weight", {rows, pair.rank}, pair.up);
        return squares_left(matrix, pair, options_.n_threads);
    }

    const Checkpoint& base_;
    const Checkpoint& tuned_;
    const ExtractOptions& options_;
    std::vector<EncodedTensor> tensors_;
    std::vector<std::pair<std::string, Squares>> kinds_;  // in the order of the network
};

void require_transformer(const Checkpoint& checkpoint) {
    check(checkpoint.part() == Part::transformer, ErrorKind::unsupported, checkpoint.file(),
          ": is a ", to_string(checkpoint.part()), "; LoRAs are extracted from transformers only");
}

// The tensors of both.
std::vector<ExpectedTensor> common_tensors(const Checkpoint& base, const Checkpoint& tuned) {
    require_transformer(base);
    require_transformer(tuned);
    const std::vector<ExpectedTensor> tensors = check_inventory(base);
    const size_t n_tuned = check_inventory(tuned).size();
    for (const ExpectedTensor& tensor : tensors) {
        const ModelTensor* other = tuned.find(tensor.name);
        const std::string found = other == nullptr ? "none" : to_string(other->shape);
        check(
            other != nullptr && same_sizes(other->shape, tensor.shape) && n_tuned == tensors.size(),
            ErrorKind::bad_file, tuned.file(), " and ", base.file(),
            " are not of one size: tensor ", tensor.name, " is ", found, " in the first and ",
            to_string(tensor.shape), " in the second, of ", n_tuned, " and ", tensors.size(),
            " tensors; give a checkpoint and what was tuned from it");
    }
    return tensors;
}

// Rounding of quantised weights is in the difference too.
std::vector<std::string> warnings_for(const Checkpoint& base, const Checkpoint& tuned) {
    std::vector<std::string> warnings;
    for (const Checkpoint* checkpoint : {&base, &tuned}) {
        const auto& tensors = checkpoint->tensors();
        const auto rounded =
            std::find_if(tensors.begin(), tensors.end(), [](const ModelTensor& tensor) {
                return is_quantized(tensor.type()) || is_scaled(tensor.type());
            });
        if (rounded != tensors.end()) {
            warnings.push_back(concat(checkpoint->file(), ": holds ", type_name(rounded->type()),
                                      " weights, and their rounding is part of the difference; "
                                      "the BF16 checkpoint gives a better LoRA"));
        }
    }
    return warnings;
}

}  // namespace

uint64_t source_bytes(const Checkpoint& base) {
    uint64_t bytes = 0;
    for (const ModelTensor& tensor : base.tensors()) {
        bytes += data_bytes(tensor.type(), tensor.shape.elements());
    }
    return bytes;
}

Extracted extract_lora(const Checkpoint& base, const Checkpoint& tuned,
                       const std::filesystem::path& output, const ExtractOptions& options) {
    const std::vector<ExpectedTensor> tensors = common_tensors(base, tuned);
    Extractor extractor(base, tuned, options);
    uint64_t done = 0;
    for (const ExpectedTensor& tensor : tensors) {
        check(!*options.cancel, ErrorKind::cancelled, "cancelled; nothing was written");
        extractor.add(tensor);
        done += data_bytes(base.get(tensor.name).type(), tensor.shape.elements());
        options.progress(done);
    }
    check(!extractor.tensors().empty(), ErrorKind::bad_file, tuned.file(), " and ", base.file(),
          " hold the same weights; there is no difference to extract");
    write_safetensors(output, extractor.tensors(),
                      {{"format", "pt"},
                       {"flux2.extracted_from", tuned.source().path().filename().string()},
                       {"flux2.base", base.source().path().filename().string()},
                       {"flux2.tool_version", version()}});
    Extracted extracted = extractor.result();
    extracted.warnings = warnings_for(base, tuned);
    return extracted;
}

}  // namespace flux2::convert
