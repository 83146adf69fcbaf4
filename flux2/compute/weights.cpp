#include "compute/weights.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace flux2 {
namespace {

constexpr int64_t kChunkElements = 1 << 20;
constexpr size_t kAlignment = 32;  // what ggml's CPU kernels are tuned for

// The type ggml gets for a matrix: the file's own where ggml can multiply with it.
TensorType stored_type(TensorType type) {
    switch (type) {
        case TensorType::f8_e4m3:
        case TensorType::f8_e5m2:
            return TensorType::bf16;
        case TensorType::f64:
            return TensorType::f32;
        default:
            return type;
    }
}

TensorType kernel_type(TensorType type) {
    return type == TensorType::f32 || type == TensorType::f64 ? TensorType::f32 : TensorType::f16;
}

}  // namespace

Weights::Weights(const Backend& backend, const Checkpoint& checkpoint, const WeightOptions& options)
    : backend_(backend),
      checkpoint_(checkpoint),
      options_(options),
      context_(ggml_init({.mem_size = (checkpoint.tensors().size() + 16) * ggml_tensor_overhead(),
                          .mem_buffer = nullptr,
                          .no_alloc = true})) {}

ggml_tensor* Weights::matrix(const std::string& name, std::initializer_list<int64_t> shape) {
    const TensorType source = checkpoint_.get(name).type();
    TensorType type = options_.type.value_or(stored_type(source));
    if (*shape.begin() % block_elements(type) != 0) {
        type = is_quantized(source) ? TensorType::f32 : stored_type(source);
    }
    return declare(name, shape, type);
}

ggml_tensor* Weights::vector(const std::string& name, int64_t n) {
    return declare(name, {n}, TensorType::f32);
}

ggml_tensor* Weights::kernel(const std::string& name, std::initializer_list<int64_t> shape) {
    return declare(name, shape, kernel_type(options_.type.value_or(checkpoint_.get(name).type())));
}

ggml_tensor* Weights::declare(const std::string& name, std::initializer_list<int64_t> shape,
                              TensorType type) {
    const ModelTensor& source = checkpoint_.get(name);
    const Shape expected(shape);
    check(same_sizes(source.shape, expected), ErrorKind::bad_file, checkpoint_.file(), ": tensor ",
          name, " has shape ", to_string(source.shape), ", expected ", to_string(expected),
          "; the file is broken or of another model");
    check(is_float(source.type()) || is_quantized(source.type()), ErrorKind::unsupported,
          checkpoint_.file(), ": tensor ", name, " is of type ", type_name(source.type()),
          ", which holds no weights");
    ggml_tensor* tensor = ggml_new_tensor(context_.get(), static_cast<ggml_type>(type),
                                          Shape::kMaxDims, expected.ne.data());
    ggml_set_name(tensor, name.c_str());
    bound_.push_back({tensor, &source});
    return tensor;
}

void Weights::load() {
    if (backend_.is_cpu()) {
        for (const MappedFile& file : checkpoint_.source().files()) {
            // Never written to: weights are constants of every graph.
            auto* base = const_cast<std::byte*>(file.bytes().data());
            mapped_.emplace_back(ggml_backend_cpu_buffer_from_ptr(base, file.bytes().size()));
        }
    }
    std::vector<Bound> to_upload;
    std::copy_if(bound_.begin(), bound_.end(), std::back_inserter(to_upload),
                 [&](const Bound& bound) { return !try_map(bound); });
    if (!to_upload.empty()) {
        buffer_.reset(
            ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), backend_.buffer_type()));
        check(buffer_ != nullptr, ErrorKind::out_of_memory, checkpoint_.file(),
              ": its weights do not fit into the memory of ", backend_.name(),
              "; use a smaller type or another --device");
        ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    for (const Bound& bound : to_upload) {
        upload(bound);
    }
}

// Points the tensor into the mapped file when the bytes there are already what it needs.
bool Weights::try_map(const Bound& bound) {
    const std::vector<Piece>& pieces = bound.source->pieces;
    if (mapped_.empty() || pieces.size() != 1 ||
        static_cast<ggml_type>(pieces[0].type) != bound.tensor->type) {
        return false;
    }
    const auto address = reinterpret_cast<uintptr_t>(pieces[0].bytes.data());
    if (address % kAlignment != 0) {
        return false;
    }
    for (const ggml_backend_buffer_ptr& buffer : mapped_) {
        const auto base = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer.get()));
        if (address >= base && address < base + ggml_backend_buffer_get_size(buffer.get())) {
            return ggml_backend_tensor_alloc(buffer.get(), bound.tensor,
                                             reinterpret_cast<void*>(address)) ==
                   GGML_STATUS_SUCCESS;
        }
    }
    return false;
}

void Weights::upload(const Bound& bound) const {
    const auto type = static_cast<TensorType>(bound.tensor->type);
    const bool same = bound.source->same_type_throughout() && bound.source->type() == type;
    const int64_t n = bound.source->shape.elements();
    const int64_t row =
        is_quantized(type) || is_quantized(bound.source->type()) ? bound.source->shape.ne[0] : 1;
    const int64_t step = std::max<int64_t>(kChunkElements / row, 1) * row;
    std::vector<float> values;
    std::vector<std::byte> encoded;
    for (int64_t first = 0; first < n; first += step) {
        const int64_t taken = std::min(step, n - first);
        encoded.resize(data_bytes(type, taken));
        if (same) {
            auto* to = encoded.data();
            for (const Piece& piece : bound.source->stretch(first, taken)) {
                to = std::copy(piece.bytes.begin(), piece.bytes.end(), to);
            }
        } else {
            values.resize(static_cast<size_t>(taken));
            bound.source->read_f32(first, values);
            from_f32(type, values, is_quantized(type) ? row : taken, encoded);
        }
        ggml_backend_tensor_set(bound.tensor, encoded.data(), data_bytes(type, first),
                                encoded.size());
    }
}

uint64_t Weights::allocated_bytes() const {
    return buffer_ ? ggml_backend_buffer_get_size(buffer_.get()) : 0;
}

}  // namespace flux2
