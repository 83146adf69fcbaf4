#include "store/checkpoint.hpp"

#include "base/check.hpp"
#include "store/tensor_names.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace flux2 {
namespace {

// Scales of FP8, NVFP4 and other schemes: reading the codes without them gives a wrong model.
constexpr std::array<std::string_view, 4> kScaleMarks = {".weight_scale", ".scale_weight",
                                                         ".comfy_quant", "scaled_fp8"};

RecognisedPart recognise(const TensorSource& source) {
    const std::string file = source.path().string();
    const Identity identity = identify(source);
    check(identity.stranger.empty(), ErrorKind::unsupported, file, ": ", identity.stranger);
    check(identity.part.has_value(), ErrorKind::bad_file, file,
          ": is no part of FLUX.2 that this program knows (", source.tensors().size(), " tensors",
          source.tensors().empty() ? "" : ", the first is " + source.tensors().front().name,
          "); give a transformer, a Qwen3 text encoder or an autoencoder");
    return *identity.part;
}

void refuse_scales(const TensorSource& source) {
    for (const TensorInfo& tensor : source.tensors()) {
        for (const std::string_view mark : kScaleMarks) {
            if (tensor.name.find(mark) != std::string::npos) {
                fail(ErrorKind::unsupported, source.path().string(),
                     ": is quantised with separate scales (", tensor.name,
                     "), which this version does not read; use the bf16 checkpoint");
            }
        }
    }
}

TensorPlace place(Component component, std::string_view name) {
    switch (component) {
        case Component::transformer:
            return place_transformer_tensor(name);
        case Component::text_encoder:
            return place_text_encoder_tensor(name);
        case Component::vae:
            return place_vae_tensor(name);
    }
    fail(ErrorKind::internal, "unknown component");
}

// A tensor as pieces; two when its halves change places.
std::vector<Piece> cut(const TensorInfo& tensor, bool swap_halves) {
    const int64_t n = tensor.shape.elements();
    if (!swap_halves) {
        return {{tensor.type, n, tensor.bytes}};
    }
    const size_t half = tensor.bytes.size() / 2;
    return {{tensor.type, n / 2, tensor.bytes.subspan(half)},
            {tensor.type, n / 2, tensor.bytes.first(half)}};
}

}  // namespace

bool ModelTensor::same_type_throughout() const {
    return std::all_of(pieces.begin(), pieces.end(),
                       [&](const Piece& piece) { return piece.type == type(); });
}

std::vector<Piece> ModelTensor::stretch(int64_t first, int64_t n) const {
    std::vector<Piece> found;
    for (const Piece& piece : pieces) {
        const int64_t skipped = std::min(first, piece.n_elements);
        const int64_t taken = std::min(n, piece.n_elements - skipped);
        if (taken > 0) {
            found.push_back({piece.type, taken,
                             piece.bytes.subspan(data_bytes(piece.type, skipped),
                                                 data_bytes(piece.type, taken))});
        }
        first -= skipped;
        n -= taken;
    }
    check(n == 0, ErrorKind::internal, "reading past the end of tensor ", name);
    return found;
}

void ModelTensor::read_f32(int64_t first, std::span<float> out) const {
    for (const Piece& piece : stretch(first, static_cast<int64_t>(out.size()))) {
        const auto n = static_cast<size_t>(piece.n_elements);
        to_f32(piece.type, piece.bytes, out.first(n));
        out = out.subspan(n);
    }
}

Checkpoint::Checkpoint(TensorSource source) : source_(std::move(source)) {
    const RecognisedPart part = recognise(source_);
    refuse_scales(source_);
    component_ = part.component;
    naming_ = part.naming;
    collect_tensors();
}

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
    return Checkpoint(TensorSource::open(path));
}

void Checkpoint::collect_tensors() {
    struct Parts {
        std::vector<const TensorInfo*> tensors;
        bool swap_halves = false;
    };
    std::vector<std::string> order;  // of first appearance in the file
    std::unordered_map<std::string, Parts> parts_of;
    for (const TensorInfo& tensor : source_.tensors()) {
        const TensorPlace place = flux2::place(component_, strip_prefix(tensor.name));
        Parts& parts = parts_of[place.name];
        if (parts.tensors.empty()) {
            order.push_back(place.name);
            parts.tensors.resize(static_cast<size_t>(place.n_parts));
            parts.swap_halves = place.swap_halves;
        }
        const auto part = static_cast<size_t>(place.part);
        check(parts.tensors.size() == static_cast<size_t>(place.n_parts) &&
                  parts.tensors[part] == nullptr,
              ErrorKind::bad_file, file(), ": tensor ", tensor.name, " stands for ", place.name,
              ", which the file also has under another name; it mixes two layouts");
        parts.tensors[part] = &tensor;
    }
    for (const std::string& name : order) {
        const Parts& parts = parts_of[name];
        ModelTensor model_tensor{.name = name, .shape = {}, .pieces = {}};
        for (const TensorInfo* tensor : parts.tensors) {
            check(tensor != nullptr, ErrorKind::bad_file, file(), ": ", name, " comes in ",
                  parts.tensors.size(), " parts, but one is missing");
            const bool first = model_tensor.pieces.empty();
            check(first || tensor->shape.ne[0] == model_tensor.shape.ne[0], ErrorKind::bad_file,
                  file(), ": tensor ", tensor->name, " has rows of ", tensor->shape.ne[0],
                  ", its siblings of ", model_tensor.shape.ne[0]);
            check(parts.tensors.size() == 1 || tensor->shape.n_dims == 2, ErrorKind::bad_file,
                  file(), ": tensor ", tensor->name, " has shape ", to_string(tensor->shape),
                  ", a matrix is expected");
            if (first) {
                model_tensor.shape = tensor->shape;
            } else {
                model_tensor.shape.ne[1] += tensor->shape.ne[1];
            }
            check(!parts.swap_halves || tensor->shape.rows() % 2 == 0, ErrorKind::bad_file, file(),
                  ": tensor ", tensor->name, " has ", tensor->shape.rows(),
                  " rows, an even number is expected");
            for (const Piece& piece : cut(*tensor, parts.swap_halves)) {
                model_tensor.pieces.push_back(piece);
            }
        }
        index_.emplace(name, tensors_.size());
        tensors_.push_back(std::move(model_tensor));
    }
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

}  // namespace flux2
