#include "checkpoints/checkpoint.hpp"

#include "base/check.hpp"
#include "checkpoints/model_config.hpp"
#include "checkpoints/tensor_names.hpp"

#include <algorithm>
#include <utility>

namespace flux2 {
namespace {

std::vector<RecognisedPart> recognise(const TensorSource& source) {
    const std::string file = source.path().string();
    Identity identity = identify(source);
    check(identity.other_kind.empty(), ErrorKind::unsupported, file, ": ", identity.other_kind);
    check(!identity.parts.empty(), ErrorKind::bad_file, file,
          ": is no part of FLUX.2 that this program knows (", source.tensors().size(), " tensors",
          source.tensors().empty() ? "" : ", the first is " + source.tensors().front().name,
          "); give a transformer, a text encoder (Qwen3 or Mistral Small) or an autoencoder");
    return std::move(identity.parts);
}

const RecognisedPart& choose(const std::vector<RecognisedPart>& parts, std::optional<Part> wanted) {
    for (const RecognisedPart& recognised : parts) {
        if (recognised.part == wanted) {
            return recognised;
        }
    }
    return parts.front();
}

TensorPlace place(Part part, std::string_view name) {
    switch (part) {
        case Part::transformer:
            return place_transformer_tensor(name);
        case Part::text_encoder:
            return place_text_encoder_tensor(name);
        case Part::vae:
            return place_vae_tensor(name);
        case Part::tiny_autoencoder:
            return place_tiny_tensor(name);
    }
    fail(ErrorKind::internal, "unknown part");
}

// A tensor as pieces: two if its halves are swapped, else one.
std::vector<Piece> cut(const Piece& whole, bool swap_halves) {
    if (!swap_halves) {
        return {whole};
    }
    const int64_t half = whole.n_elements / 2;
    const size_t half_bytes = whole.bytes.size() / 2;
    return {{whole.type, half, whole.bytes.subspan(half_bytes), whole.scaled, half},
            {whole.type, half, whole.bytes.first(half_bytes), whole.scaled, 0}};
}

// Reorders the rows of every head from Hugging Face's order 0, 1, 2, ... (RoPE rotates the two
// halves) to llama.cpp's order 0, half, 1, half + 1, ... (RoPE rotates adjacent pairs).
std::vector<Piece> interleave_heads(const Piece& whole, int64_t row, int64_t head_dim) {
    const size_t row_bytes = data_bytes(whole.type, row);
    const int64_t n_rows = whole.n_elements / row;
    std::vector<Piece> rows;
    rows.reserve(static_cast<size_t>(n_rows));
    for (int64_t i = 0; i < n_rows; ++i) {
        const int64_t place = i % head_dim;
        const int64_t from = i - place + place / 2 + place % 2 * (head_dim / 2);
        rows.push_back({whole.type, row,
                        whole.bytes.subspan(static_cast<size_t>(from) * row_bytes, row_bytes),
                        whole.scaled, whole.first + from * row});
    }
    return rows;
}

}  // namespace

bool ModelTensor::same_type_throughout() const {
    return std::all_of(pieces.begin(), pieces.end(),
                       [&](const Piece& piece) { return piece.type == type(); });
}

std::vector<Piece> ModelTensor::slice(int64_t first, int64_t n) const {
    std::vector<Piece> found;
    for (const Piece& piece : pieces) {
        const int64_t skipped = std::min(first, piece.n_elements);
        const int64_t taken = std::min(n, piece.n_elements - skipped);
        if (taken > 0) {
            found.push_back({piece.type, taken,
                             piece.bytes.subspan(data_bytes(piece.type, skipped),
                                                 data_bytes(piece.type, taken)),
                             piece.scaled, piece.first + skipped});
        }
        first -= skipped;
        n -= taken;
    }
    check(n == 0, ErrorKind::internal, "reading past the end of tensor ", name);
    return found;
}

void ModelTensor::read_f32(int64_t first, std::span<float> out) const {
    for (const Piece& piece : slice(first, static_cast<int64_t>(out.size()))) {
        const auto n = static_cast<size_t>(piece.n_elements);
        if (piece.scaled != nullptr) {
            piece.scaled->read_f32(piece.first, out.first(n));
        } else {
            to_f32(piece.type, piece.bytes, out.first(n));
        }
        out = out.subspan(n);
    }
}

Checkpoint::Checkpoint(TensorSource source, std::optional<Part> wanted)
    : source_(std::move(source)) {
    const std::vector<RecognisedPart> parts = recognise(source_);
    const RecognisedPart& chosen = choose(parts, wanted);
    part_ = chosen.part;
    naming_ = chosen.naming;
    for (const RecognisedPart& each : parts) {
        parts_of_file_.push_back(each.part);
    }
    collect_tensors(chosen);
}

Checkpoint Checkpoint::open(const std::filesystem::path& path, std::optional<Part> wanted) {
    return Checkpoint(TensorSource::open(path), wanted);
}

std::vector<Checkpoint> Checkpoint::open_all(const std::filesystem::path& path) {
    std::vector<Checkpoint> checkpoints;
    checkpoints.push_back(open(path));
    const std::vector<Part> parts = checkpoints.front().parts_of_file();
    for (size_t i = 1; i < parts.size(); ++i) {
        checkpoints.push_back(open(path, parts[i]));
    }
    return checkpoints;
}

// In a file with several parts the tensors with the part's prefix; else all tensors except those
// with a different prefix.
std::vector<const TensorInfo*> Checkpoint::tensors_of(const RecognisedPart& part) const {
    const bool alone = parts_of_file_.size() == 1;
    std::vector<const TensorInfo*> tensors;
    for (const TensorInfo& tensor : source_.tensors()) {
        const std::string_view prefix = prefix_of(tensor.name);
        if (prefix == part.prefix || (alone && (part.prefix.empty() || prefix.empty()))) {
            tensors.push_back(&tensor);
        }
    }
    return tensors;
}

// The tensors of the file that are stacked into one of ours, in the order of its rows.
struct Checkpoint::StackedTensors {
    std::vector<const TensorInfo*> tensors;
    bool swap_halves = false;
};

void Checkpoint::collect_tensors(const RecognisedPart& recognised) {
    const std::vector<const TensorInfo*> tensors = tensors_of(recognised);
    const WeightSchemes schemes(source_, naming_, tensors);
    std::vector<std::string> order;  // of first appearance in the file
    std::unordered_map<std::string, StackedTensors> stacks;
    for (const TensorInfo* tensor : tensors) {
        if (describes_weights(tensor->name)) {
            continue;
        }
        const TensorPlace place = flux2::place(part_, strip_prefix(tensor->name));
        StackedTensors& stacked = stacks[place.name];
        if (stacked.tensors.empty()) {
            order.push_back(place.name);
            stacked.tensors.resize(static_cast<size_t>(place.n_stacked));
            stacked.swap_halves = place.swap_halves;
        }
        const auto index = static_cast<size_t>(place.stack_index);
        check(stacked.tensors.size() == static_cast<size_t>(place.n_stacked) &&
                  stacked.tensors[index] == nullptr,
              ErrorKind::bad_file, file(), ": tensor ", tensor->name, " stands for ", place.name,
              ", which the file also has under another name; it mixes two layouts");
        stacked.tensors[index] = tensor;
    }
    for (const std::string& name : order) {
        index_.emplace(name, tensors_.size());
        tensors_.push_back(assemble(name, stacks[name], schemes));
    }
    const bool mistral = part_ == Part::text_encoder && !normalises_queries();
    if (mistral && naming_ == Naming::hugging_face) {
        interleave_queries_and_keys();
    }
}

void Checkpoint::interleave_queries_and_keys() {
    const int64_t head_dim = configured_head_dim(source_);
    for (ModelTensor& tensor : tensors_) {
        if (!tensor.name.ends_with(".attn_q.weight") && !tensor.name.ends_with(".attn_k.weight")) {
            continue;
        }
        check(tensor.shape.n_dims == 2 && tensor.shape.elements() > 0 &&
                  tensor.shape.ne[1] % head_dim == 0,
              ErrorKind::bad_file, file(), ": tensor ", tensor.name, " has shape ",
              to_string(tensor.shape), ", which does not divide into heads of ", head_dim,
              "; the file is broken, or head_dim in its config.json is wrong");
        tensor.pieces = interleave_heads(tensor.pieces.front(), tensor.shape.ne[0], head_dim);
    }
}

ModelTensor Checkpoint::assemble(const std::string& name, const StackedTensors& stacked,
                                 const WeightSchemes& schemes) {
    ModelTensor model_tensor{.name = name, .shape = {}, .pieces = {}};
    for (size_t i = 0; i < stacked.tensors.size(); ++i) {
        const TensorInfo* tensor = stacked.tensors[i];
        check(tensor != nullptr, ErrorKind::bad_file, file(), ": tensor ", name, " comes in ",
              stacked.tensors.size(), " tensors, and number ", i + 1,
              " is missing; the file is incomplete or of another model");
        const ScaledMatrix* scaled = nullptr;
        if (auto found = schemes.find(*tensor)) {
            scaled = scaled_.emplace_back(std::move(found)).get();
        }
        const Shape& shape = scaled != nullptr ? scaled->shape : tensor->shape;
        const bool first = model_tensor.pieces.empty();
        check(first || shape.ne[0] == model_tensor.shape.ne[0], ErrorKind::bad_file, file(),
              ": tensor ", tensor->name, " has rows of ", shape.ne[0], ", its siblings of ",
              model_tensor.shape.ne[0]);
        check(stacked.tensors.size() == 1 || shape.n_dims == 2, ErrorKind::bad_file, file(),
              ": tensor ", tensor->name, " has shape ", to_string(shape), ", a matrix is expected");
        if (first) {
            model_tensor.shape = shape;
        } else {
            model_tensor.shape.ne[1] += shape.ne[1];
        }
        check(!stacked.swap_halves || shape.rows() % 2 == 0, ErrorKind::bad_file, file(),
              ": tensor ", tensor->name, " has ", shape.rows(),
              " rows, an even number is expected");
        const TensorType type = scaled != nullptr ? scaled->type : tensor->type;
        for (const Piece& piece :
             cut({type, shape.elements(), tensor->bytes, scaled, 0}, stacked.swap_halves)) {
            model_tensor.pieces.push_back(piece);
        }
    }
    return model_tensor;
}

const ModelTensor* Checkpoint::find(std::string_view name) const {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

const ModelTensor& Checkpoint::get(std::string_view name) const {
    const ModelTensor* tensor = find(name);
    check(tensor != nullptr, ErrorKind::bad_file, file(), ": tensor ", name,
          " is missing; the file is incomplete or of another model");
    return *tensor;
}

int64_t Checkpoint::n_parameters() const {
    int64_t n = 0;
    for (const ModelTensor& tensor : tensors_) {
        n += tensor.shape.elements();
    }
    return n;
}

bool Checkpoint::normalises_queries() const {
    return find("blk.0.attn_q_norm.weight") != nullptr ||
           find("blk.0.attn_k_norm.weight") != nullptr;
}

}  // namespace flux2
