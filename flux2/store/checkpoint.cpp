#include "store/checkpoint.hpp"

#include "base/check.hpp"
#include "store/tensor_names.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace flux2 {
namespace {

struct Recognised {
    Component component;
    Naming naming;
};

// The names of a file without prefixes, and questions about them.
class Names {
  public:
    explicit Names(const TensorSource& source) {
        for (const TensorInfo& tensor : source.tensors()) {
            names_.emplace(strip_prefix(tensor.name), &tensor);
        }
    }
    const TensorInfo* find(std::string_view name) const {
        const auto found = names_.find(name);
        return found == names_.end() ? nullptr : found->second;
    }
    bool has(std::string_view name) const { return find(name) != nullptr; }
    const TensorInfo* containing(std::span<const std::string_view> marks) const {
        for (const auto& [name, tensor] : names_) {
            for (const std::string_view mark : marks) {
                if (name.find(mark) != std::string_view::npos) {
                    return tensor;
                }
            }
        }
        return nullptr;
    }

  private:
    std::map<std::string_view, const TensorInfo*> names_;
};

constexpr std::array<std::string_view, 6> kAdapterMarks = {"lora_A",  "lora_B",  "lora_down",
                                                           "lora_up", "lokr_w1", "hada_w1"};
// Scales of FP8, NVFP4 and other schemes: reading the codes without them gives a wrong model.
constexpr std::array<std::string_view, 4> kScaleMarks = {".weight_scale", ".scale_weight",
                                                         ".comfy_quant", "scaled_fp8"};

// Things people also have, refused by name.
void refuse_strangers(const std::string& file, const Names& names) {
    if (const TensorInfo* adapter = names.containing(kAdapterMarks)) {
        fail(ErrorKind::unsupported, file, ": is an adapter (", adapter->name,
             "), not a model; give the model it belongs to");
    }
    if (names.has("double_blocks.0.img_mod.lin.weight") || names.has("vector_in.in_layer.weight")) {
        fail(ErrorKind::unsupported, file,
             ": is a FLUX.1 transformer; this program runs FLUX.2 models");
    }
    if (const TensorInfo* scale = names.containing(kScaleMarks)) {
        fail(ErrorKind::unsupported, file, ": is quantised with separate scales (", scale->name,
             "), which this version does not read; use the bf16 checkpoint");
    }
}

Recognised recognise(const std::string& file, const TensorSource& source) {
    const Names names(source);
    refuse_strangers(file, names);
    if (names.has("double_stream_modulation_img.lin.weight")) {
        return {Component::transformer, Naming::original};
    }
    if (names.has("double_stream_modulation_img.linear.weight")) {
        return {Component::transformer, Naming::diffusers};
    }
    if (names.has("decoder.conv_in.weight")) {
        check(names.has("bn.running_mean"), ErrorKind::unsupported, file,
              ": is an autoencoder of another model (no bn.running_mean); FLUX.2 has its own, "
              "ae.safetensors or flux2-vae.safetensors");
        return {Component::vae,
                names.has("decoder.post_quant_conv.weight") ? Naming::original : Naming::diffusers};
    }
    if (names.has("model.layers.0.self_attn.q_norm.weight")) {
        return {Component::text_encoder, Naming::hugging_face};
    }
    if (names.has("blk.0.attn_q_norm.weight")) {
        return {Component::text_encoder, Naming::llama_cpp};
    }
    check(!names.has("model.layers.0.self_attn.q_proj.weight") && !names.has("blk.0.attn_q.weight"),
          ErrorKind::unsupported, file,
          ": is a language model without query norms, so not Qwen3, which klein models use");
    fail(ErrorKind::bad_file, file, ": is no part of FLUX.2 that this program knows (",
         source.tensors().size(), " tensors",
         source.tensors().empty() ? "" : ", the first is " + source.tensors().front().name,
         "); give a transformer, a Qwen3 text encoder or an autoencoder");
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

const char* to_string(Component component) {
    switch (component) {
        case Component::transformer:
            return "transformer";
        case Component::text_encoder:
            return "text encoder";
        case Component::vae:
            return "autoencoder";
    }
    return "?";
}

const char* to_string(Naming naming) {
    switch (naming) {
        case Naming::original:
            return "original names";
        case Naming::diffusers:
            return "diffusers names";
        case Naming::hugging_face:
            return "Hugging Face names";
        case Naming::llama_cpp:
            return "llama.cpp names";
    }
    return "?";
}

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
    const Recognised found = recognise(file(), source_);
    component_ = found.component;
    naming_ = found.naming;
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
