#include "compute/weights.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/parallel.hpp"
#include "base/system.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/cpu/q8_linear.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace flux2 {
namespace {

constexpr int64_t kChunkElements = 1 << 20;
constexpr size_t kAlignment = 32;  // what ggml's CPU kernels are tuned for

// The type ggml gets for a matrix: the file's own where ggml can multiply with it, and does so at a
// decent speed.
TensorType stored_type(const Backend& backend, TensorType type) {
    const bool small =
        type == TensorType::f8_e4m3 || type == TensorType::f8_e5m2 || is_scaled(type);
    if (type == TensorType::bf16 || small) {
        return backend.multiplies_bf16() ? TensorType::bf16 : TensorType::f16;
    }
    return type == TensorType::f64 ? TensorType::f32 : type;
}

TensorType filter_type(TensorType type) {
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

Weights::Weights(const Backend& backend, const Checkpoint& checkpoint,
                 const std::vector<ExpectedTensor>& tensors, const WeightOptions& options)
    : backend_(backend),
      checkpoint_(checkpoint),
      options_(options),
      context_(ggml_init({.mem_size = (tensors.size() + 16) * ggml_tensor_overhead(),
                          .mem_buffer = nullptr,
                          .no_alloc = true})) {
    for (const ExpectedTensor& tensor : tensors) {
        shapes_.emplace(tensor.name, tensor.shape);
    }
}

ggml_tensor* Weights::matrix(const std::string& name) {
    const TensorType source = checkpoint_.get(name).type();
    const bool unpacks = options_.unpack && backend_.operations() == Operations::cuda &&
                         (is_quantized(source) || source == TensorType::f16);
    return declare(name, unpacks ? TensorType::bf16 : matrix_type(name), Use::multiply);
}

ggml_tensor* Weights::table(const std::string& name) {
    return declare(name, matrix_type(name), Use::look_up);
}

ggml_tensor* Weights::vector(const std::string& name) {
    return declare(name, TensorType::f32, Use::other);
}

ggml_tensor* Weights::filter(const std::string& name) {
    return declare(name, filter_type(options_.type.value_or(checkpoint_.get(name).type())),
                   Use::other);
}

HostTensor Weights::read(const std::string& name) const {
    const ModelTensor& tensor = checked(name);
    HostTensor values(shapes_.at(name).ne);
    tensor.read_f32(0, values.data);
    return values;
}

std::string Weights::file() const {
    return checkpoint_.file();
}

// Rows that are no whole number of blocks cannot be quantised.
TensorType Weights::matrix_type(const std::string& name) const {
    const TensorType source = checked(name).type();
    const TensorType type = options_.type.value_or(stored_type(backend_, source));
    if (shapes_.at(name).ne[0] % block_elements(type) == 0) {
        return type;
    }
    return is_quantized(source) ? TensorType::f32 : stored_type(backend_, source);
}

// The file's tensor, of the shape that the list has.
const ModelTensor& Weights::checked(const std::string& name) const {
    const auto entry = shapes_.find(name);
    check(entry != shapes_.end(), ErrorKind::internal, "tensor ", name, " is in no list");
    const ModelTensor& tensor = checkpoint_.get(name);
    check(same_sizes(tensor.shape, entry->second), ErrorKind::bad_file, checkpoint_.file(),
          ": tensor ", name, " has shape ", to_string(tensor.shape), ", expected ",
          to_string(entry->second), "; the file is broken or of another model");
    return tensor;
}

ggml_tensor* Weights::declare(const std::string& name, TensorType type, Use use) {
    const ModelTensor& source = checked(name);
    const TensorType found = source.type();
    check(is_float(found) || is_quantized(found) || is_scaled(found), ErrorKind::unsupported,
          checkpoint_.file(), ": tensor ", name, " is of type ", type_name(found),
          ", which holds no weights");
    ggml_tensor* tensor = ggml_new_tensor(context_.get(), static_cast<ggml_type>(type),
                                          Shape::kMaxDims, shapes_.at(name).ne.data());
    ggml_set_name(tensor, name.c_str());
    bound_.push_back({tensor, &source, block_, use});
    return tensor;
}

bool Weights::has_block_matrix(ggml_type type) const {
    return std::any_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
        return bound.use == Use::multiply && bound.block != kNoBlock && bound.tensor->type == type;
    });
}

bool Weights::has_only_block_matrices(ggml_type type) const {
    return std::all_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
        return bound.use != Use::multiply || bound.block == kNoBlock || bound.tensor->type == type;
    });
}

void Weights::load() {
    for (const MappedFile& file : checkpoint_.source().files()) {
        // Never written to: weights are constants of every graph.
        auto* base = const_cast<std::byte*>(file.bytes().data());
        mapped_.emplace_back(ggml_backend_cpu_buffer_from_ptr(base, file.bytes().size()));
        // Schedulers then compute beside the weights instead of copying them to a device.
        ggml_backend_buffer_set_usage(mapped_.back().get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    std::set<const Bound*> repacked;
    std::map<std::string, size_t> counts;  // sorted: groups come in the order of their addresses
    for (const auto& [type, group] : choose_repacked()) {
        const bool ours = type == backend_.cpu_buffer_type();
        counts[ours ? "Q8_0 tiles" : ggml_backend_buft_name(type)] += group.size();
        if (ours) {  // plain memory: we repack them ourselves
            for (const Bound* bound : group) {
                cpu::mark_q8(bound->tensor);
            }
        }
        place(group, type, /*repacks=*/true);
        repacked.insert(group.begin(), group.end());
    }
    for (const auto& [name, n] : counts) {
        layout_ += concat(layout_.empty() ? "" : ", ", name, " x ", n);
    }
    std::vector<const Bound*> in_ram, on_device, streamed;
    for (const Bound& bound : bound_) {
        if (repacked.contains(&bound)) {
            continue;
        }
        const bool stream = streams() && bound.block != kNoBlock;
        const bool host = bound.use == Use::look_up || (backend_.is_cpu() && !stream);
        if (host && try_map(bound)) {
            memory_.mapped += ggml_nbytes(bound.tensor);
        } else if (bound.use == Use::look_up) {
            in_ram.push_back(&bound);
        } else if (stream) {
            streamed.push_back(&bound);
        } else {
            on_device.push_back(&bound);
        }
    }
    place(in_ram, backend_.cpu_buffer_type());
    place(on_device, backend_.buffer_type());
    place_blocks(streamed);
}

// The matrices to repack, by the buffer type that does it: all that can be, if that is wanted and
// leaves a quarter of the free RAM for everything else.
std::map<ggml_backend_buffer_type_t, std::vector<const Weights::Bound*>> Weights::choose_repacked()
    const {
    if (!options_.repack || !backend_.is_cpu() || streams()) {
        return {};
    }
    std::map<ggml_backend_buffer_type_t, std::vector<const Bound*>> groups;
    uint64_t bytes = 0;
    for (const Bound& bound : bound_) {
        if (bound.use != Use::multiply) {
            continue;
        }
        const bool ours =
            backend_.operations() == Operations::cpu && cpu::suits_q8_tiles(bound.tensor);
        const auto type =
            ours ? backend_.cpu_buffer_type() : backend_.repack_buffer_type(bound.tensor);
        if (type != nullptr) {
            groups[type].push_back(&bound);
            bytes += ggml_backend_buft_get_alloc_size(type, bound.tensor);
        }
    }
    const uint64_t available = available_ram_bytes();
    if (available > 0 && bytes > available / 4 * 3) {
        log(LogLevel::warning,
            concat(checkpoint_.file(), ": its matrices stay in the mapped file, which is slower: ",
                   "laid out for this CPU they would take ", bytes / 1000000, " MB of the ",
                   available / 1000000, " MB of RAM that are free"));
        return {};
    }
    return groups;
}

// Gives the tensors memory of their own and fills it.
void Weights::place(const std::vector<const Bound*>& group, ggml_backend_buffer_type_t type,
                    bool repacks) {
    if (group.empty()) {
        return;
    }
    buffers_.push_back(backend_.allocate(tensors_of(group), type, checkpoint_.file()));
    ggml_backend_buffer_set_usage(buffers_.back().buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const bool host = repacks || ggml_backend_buft_is_host(type);
    (host ? memory_.own.host : memory_.own.device) += buffers_.back().bytes;
    if (backend_.measures_only()) {
        return;
    }
    parallel_for(group.size(), host || backend_.takes_parallel_writes() ? backend_.n_threads() : 1,
                 [&](size_t i, size_t) { fill(*group[i], repacks); });
}

// Writes a tensor's values to its memory, then releases the file's pages.
void Weights::fill(const Bound& bound, bool in_one_go) const {
    std::vector<std::byte> whole;
    const size_t size = ggml_nbytes(bound.tensor);
    const auto write = [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (cpu::is_repacked_q8(bound.tensor)) {
            cpu::repack_q8(bytes, bound.tensor);
        } else {
            ggml_backend_tensor_set(bound.tensor, bytes.data(), offset, bytes.size());
        }
    };
    encode(bound, [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (in_one_go && bytes.size() < size) {
            whole.insert(whole.end(), bytes.begin(), bytes.end());
        } else {
            write(offset, bytes);
        }
    });
    if (!whole.empty()) {
        write(0, whole);
    }
    for (const Piece& piece : bound.source->pieces) {
        MappedFile::forget(piece.bytes);
    }
}

void Weights::place_blocks(const std::vector<const Bound*>& group) {
    if (group.empty()) {
        return;
    }
    stream_.emplace(backend_, checkpoint_.file());
    for (const Bound* bound : group) {
        stream_->add(static_cast<size_t>(bound->block), bound->tensor);
    }
    stream_->allocate();
    memory_.own += stream_->memory();
    for (size_t i = 0; i < group.size() && !backend_.measures_only(); ++i) {
        encode(*group[i], [&](uint64_t offset, std::span<const std::byte> bytes) {
            std::copy(bytes.begin(), bytes.end(), stream_->ram_of(i) + offset);
        });
    }
}

void Weights::enter_block(size_t i) {
    if (stream_) {
        stream_->enter(i);
    }
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

// Hands the tensor's bytes in its type in memory to `write`, a part at a time.
void Weights::encode(const Bound& bound, const Write& write) const {
    check(!backend_.cancel_requested(), ErrorKind::cancelled, "cancelled");
    const auto type = static_cast<TensorType>(bound.tensor->type);
    const bool same = bound.source->same_type_throughout() && bound.source->type() == type;
    if (same && bound.source->pieces.size() == 1) {
        write(0, bound.source->pieces.front().bytes);
        return;
    }
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
            for (const Piece& piece : bound.source->slice(first, taken)) {
                to = std::copy(piece.bytes.begin(), piece.bytes.end(), to);
            }
        } else {
            values.resize(static_cast<size_t>(taken));
            bound.source->read_f32(first, values);
            const size_t at = is_quantized(type) ? find_not_finite(values) : values.size();
            if (at < values.size()) {
                fail(ErrorKind::bad_file, checkpoint_.file(), ": tensor ", bound.source->name,
                     " holds ", values[at], " as value ", first + static_cast<int64_t>(at),
                     ", which ", type_name(type), " cannot; the file is broken");
            }
            from_f32(type, values, is_quantized(type) ? row : taken, encoded);
        }
        write(data_bytes(type, first), encoded);
    }
}

}  // namespace flux2
