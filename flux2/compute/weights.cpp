#include "compute/weights.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

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

template <typename Bounds>
std::vector<ggml_tensor*> tensors_of(const Bounds& group) {
    std::vector<ggml_tensor*> tensors;
    for (const auto* bound : group) {
        tensors.push_back(bound->tensor);
    }
    return tensors;
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
    return declare(name, shape, matrix_type(name, *shape.begin()));
}

ggml_tensor* Weights::table(const std::string& name, std::initializer_list<int64_t> shape) {
    return declare(name, shape, matrix_type(name, *shape.begin()), /*in_ram=*/true);
}

ggml_tensor* Weights::vector(const std::string& name, int64_t n) {
    return declare(name, {n}, TensorType::f32);
}

ggml_tensor* Weights::kernel(const std::string& name, std::initializer_list<int64_t> shape) {
    return declare(name, shape, kernel_type(options_.type.value_or(checkpoint_.get(name).type())));
}

// Rows that are no whole number of blocks cannot be quantised.
TensorType Weights::matrix_type(const std::string& name, int64_t row) const {
    const TensorType source = checkpoint_.get(name).type();
    const TensorType type = options_.type.value_or(stored_type(source));
    if (row % block_elements(type) == 0) {
        return type;
    }
    return is_quantized(source) ? TensorType::f32 : stored_type(source);
}

ggml_tensor* Weights::declare(const std::string& name, std::initializer_list<int64_t> shape,
                              TensorType type, bool in_ram) {
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
    bound_.push_back({tensor, &source, block_, in_ram});
    return tensor;
}

void Weights::load() {
    for (const MappedFile& file : checkpoint_.source().files()) {
        // Never written to: weights are constants of every graph.
        auto* base = const_cast<std::byte*>(file.bytes().data());
        mapped_.emplace_back(ggml_backend_cpu_buffer_from_ptr(base, file.bytes().size()));
    }
    std::vector<const Bound*> in_ram, on_device, streamed;
    for (const Bound& bound : bound_) {
        const bool host = bound.in_ram || backend_.is_cpu();
        if (host && try_map(bound)) {
            memory_.mapped += ggml_nbytes(bound.tensor);
        } else if (bound.in_ram) {
            in_ram.push_back(&bound);
        } else if (streams() && bound.block != kNoBlock) {
            streamed.push_back(&bound);
        } else {
            on_device.push_back(&bound);
        }
    }
    place(in_ram, backend_.cpu_buffer_type());
    place(on_device, backend_.buffer_type());
    place_blocks(streamed);
}

// Gives the tensors memory of their own and fills it.
void Weights::place(const std::vector<const Bound*>& group, ggml_backend_buffer_type_t type) {
    if (group.empty()) {
        return;
    }
    buffers_.push_back(backend_.allocate(tensors_of(group), type, checkpoint_.file()));
    ggml_backend_buffer_set_usage(buffers_.back().buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    (ggml_backend_buft_is_host(type) ? memory_.own.host : memory_.own.device) +=
        buffers_.back().bytes;
    if (backend_.measures_only()) {
        return;
    }
    for (const Bound* bound : group) {
        encode(*bound, [&](uint64_t offset, std::span<const std::byte> bytes) {
            ggml_backend_tensor_set(bound->tensor, bytes.data(), offset, bytes.size());
        });
    }
}

// Lays the blocks out in RAM, and on the device every other one over the same memory.
void Weights::place_blocks(const std::vector<const Bound*>& group) {
    if (group.empty()) {
        return;
    }
    const ggml_backend_buffer_type_t type = backend_.buffer_type();
    std::array<uint64_t, kSlots> slot_bytes = {};
    uint64_t ram_bytes = 0;
    stream_.blocks.resize(n_blocks_);
    std::vector<uint64_t> block_bytes(n_blocks_);
    for (const Bound* bound : group) {
        const auto block = static_cast<size_t>(bound->block);
        stream_.blocks[block].push_back({bound->tensor, ram_bytes});
        ram_bytes += GGML_PAD(ggml_nbytes(bound->tensor), kAlignment);
        block_bytes[block] += GGML_PAD(ggml_backend_buft_get_alloc_size(type, bound->tensor),
                                       ggml_backend_buft_get_alignment(type));
        slot_bytes[block % kSlots] = std::max(slot_bytes[block % kSlots], block_bytes[block]);
    }
    memory_.own += {.device = slot_bytes[0] + slot_bytes[1], .host = ram_bytes};
    allocate_slots(slot_bytes);
    if (backend_.measures_only()) {
        return;
    }
    stream_.ram.reset(ggml_backend_buft_alloc_buffer(backend_.upload_buffer_type(), ram_bytes));
    check(stream_.ram != nullptr, ErrorKind::out_of_memory, checkpoint_.file(), ": ",
          ram_bytes / 1000000, " MB of weights do not fit into RAM; use a smaller type");
    stream_.queue = backend_.make_upload_queue();
    auto* ram = static_cast<std::byte*>(ggml_backend_buffer_get_base(stream_.ram.get()));
    for (const Bound* bound : group) {
        const std::vector<StreamedTensor>& block =
            stream_.blocks[static_cast<size_t>(bound->block)];
        const auto place = std::find_if(block.begin(), block.end(), [&](const StreamedTensor& t) {
            return t.tensor == bound->tensor;
        });
        encode(*bound, [&](uint64_t offset, std::span<const std::byte> bytes) {
            std::copy(bytes.begin(), bytes.end(), ram + place->offset + offset);
        });
    }
}

// Two buffers on the device; the tensors of block i point into buffer i % 2.
void Weights::allocate_slots(const std::array<uint64_t, kSlots>& slot_bytes) {
    const ggml_backend_buffer_type_t type = backend_.buffer_type();
    for (size_t slot = 0; slot < kSlots; ++slot) {
        TensorBuffer buffer;
        buffer.bytes = slot_bytes[slot];
        buffer.buffer.reset(
            ggml_backend_buft_alloc_buffer(type, backend_.measures_only() ? 0 : buffer.bytes));
        check(buffer.buffer != nullptr, ErrorKind::out_of_memory, checkpoint_.file(),
              ": two of its blocks take ", (slot_bytes[0] + slot_bytes[1]) / 1000000,
              " MB, which do not fit into the memory of ", backend_.name());
        ggml_backend_buffer_set_usage(buffer.buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (size_t block = slot; block < stream_.blocks.size(); block += kSlots) {
            auto* at = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer.buffer.get()));
            for (const StreamedTensor& streamed : stream_.blocks[block]) {
                if (backend_.measures_only()) {
                    streamed.tensor->buffer = buffer.buffer.get();
                    continue;
                }
                ggml_backend_tensor_alloc(buffer.buffer.get(), streamed.tensor, at);
                at += GGML_PAD(ggml_backend_buft_get_alloc_size(type, streamed.tensor),
                               ggml_backend_buft_get_alignment(type));
            }
        }
        buffers_.push_back(std::move(buffer));
    }
}

void Weights::enter_block(size_t i) {
    if (stream_.blocks.empty()) {
        return;
    }
    upload_block(i);  // nothing to do unless it is the very first
    ggml_backend_synchronize(stream_.queue.get());
    const size_t next = (i + 1) % n_blocks_;
    if (next % kSlots != i % kSlots) {
        upload_block(next);
    }
}

void Weights::upload_block(size_t i) {
    std::optional<size_t>& in_slot = stream_.in_slot[i % kSlots];
    if (in_slot == i) {
        return;
    }
    const auto* ram =
        static_cast<const std::byte*>(ggml_backend_buffer_get_base(stream_.ram.get()));
    for (const StreamedTensor& streamed : stream_.blocks[i]) {
        ggml_backend_tensor_set_async(stream_.queue.get(), streamed.tensor, ram + streamed.offset,
                                      0, ggml_nbytes(streamed.tensor));
    }
    in_slot = i;
}

// Points the tensor into the mapped file when the bytes there are already what it needs.
bool Weights::try_map(const Bound& bound) {
    const std::vector<Piece>& pieces = bound.source->pieces;
    if (pieces.size() != 1 || static_cast<ggml_type>(pieces[0].type) != bound.tensor->type) {
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

// Hands the tensor's bytes in its type in memory to `write`, a stretch at a time.
void Weights::encode(const Bound& bound, const Write& write) const {
    check(!backend_.cancel_requested(), ErrorKind::cancelled, "cancelled");
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
        write(data_bytes(type, first), encoded);
    }
}

}  // namespace flux2
