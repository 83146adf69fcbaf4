#include "compute/weights.hpp"

#include "adapters/adapter_set.hpp"
#include "base/check.hpp"
#include "base/log.hpp"
#include "base/parallel.hpp"
#include "base/ram.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/cpu/repacked.hpp"
#include "compute/cpu/tile_linear.hpp"
#include "compute/row_length.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

namespace flux2 {
namespace {

constexpr int64_t kChunkElements = 1 << 20;
constexpr size_t kAlignment = 32;  // what ggml's CPU kernels are tuned for
// Tensors that devices take in one go only, and that are not in the file as they take them, are put
// together in so much memory.
constexpr uint64_t kWholeBytes = 256'000'000;

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

// The type of a matrix whose values adapters have changed: as it is unless that would round them
// again.
TensorType rewritten_type(const Backend& backend, TensorType type) {
    return is_quantized(type) ? stored_type(backend, TensorType::bf16) : type;
}

// Of the n largest.
uint64_t sum_of_largest(std::vector<uint64_t> sizes, size_t n) {
    const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(std::min(n, sizes.size()));
    std::partial_sort(sizes.begin(), end, sizes.end(), std::greater<>());
    return std::accumulate(sizes.begin(), end, uint64_t{0});
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
      low_rank_(backend),
      context_(tensors.size() + 16),
      whole_(kWholeBytes) {
    check(options.type != TensorType::bf16 || backend.device().abilities().holds_bf16,
          ErrorKind::unsupported, backend.name(), " cannot compute with BF16; use ", Setting::type,
          " F16");
    for (const ExpectedTensor& tensor : tensors) {
        shapes_.emplace(tensor.name, tensor.shape);
    }
}

ggml_tensor* Weights::matrix(const std::string& name) {
    const TensorType source = checkpoint_.get(name).type();
    const bool unpacks = options_.unpack && backend_.operations() == Operations::cuda &&
                         (is_quantized(source) || source == TensorType::f16);
    const TensorType type = unpacks ? TensorType::bf16 : matrix_type(name);
    return declare(name, is_rewritten(name, Use::multiply) ? rewritten_type(backend_, type) : type,
                   Use::multiply);
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
    bound_.push_back({tensor, &source, block_, use, is_rewritten(name, use), 0});
    return tensor;
}

// Whether adapters change the values of the tensor itself: by more than a pair of low rank, which
// can run beside a matrix.
bool Weights::is_rewritten(const AdapterSet* adapters, const std::string& name, Use use) {
    return adapters != nullptr && adapters->changes(name) &&
           !(use == Use::multiply && adapters->is_low_rank(name));
}

bool Weights::has_block_matrix(ggml_type type) const {
    return std::any_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
        return bound.use == Use::multiply && bound.block != kNoBlock && bound.tensor->type == type;
    });
}

bool Weights::all_block_matrices(const std::function<bool(ggml_type)>& suit) const {
    return std::all_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
        return bound.use != Use::multiply || bound.block == kNoBlock || suit(bound.tensor->type);
    });
}

void Weights::load(bool pairs_as_columns) {
    pairs_as_columns_ = pairs_as_columns;
    for (Bound* bound : with_pairs()) {
        if (takes_columns(*bound)) {
            bound->n_columns =
                LowRankWeights::padded_columns(options_.adapters->rank(bound->source->name));
            set_row_length(bound->tensor, bound->tensor->ne[0] + bound->n_columns);
        }
    }
    mapped_.reserve(checkpoint_.source().files().size());
    for (const MappedFile& file : checkpoint_.source().files()) {
        // Never written to: weights are constants of every graph.
        auto* base = const_cast<std::byte*>(file.bytes().data());
        mapped_.emplace_back(ggml_backend_cpu_buffer_from_ptr(base, file.bytes().size()));
        // Schedulers then compute beside the weights instead of copying them to a device.
        ggml_backend_buffer_set_usage(mapped_.back().get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    std::set<const Bound*> repacked;
    std::map<std::string, size_t> counts;  // sorted: groups come in the order of their addresses
    for (const Bound& bound : bound_) {
        if (suits_tiles(bound)) {
            cpu::mark_for_tiles(bound.tensor);
            ++counts[cpu::tiles_name(bound.tensor)];
        }
    }
    for (const auto& [type, group] : choose_repacked()) {
        const bool ours = type == backend_.cpu_buffer_type();  // plain memory: we repack them
        for (const Bound* bound : group) {
            if (ours) {
                cpu::mark_repacked(bound->tensor);
            }
            ++counts[ours ? cpu::layout_name(bound->tensor) : ggml_backend_buft_name(type)];
        }
        place(group, type, /*repacks=*/true);
        repacked.insert(group.begin(), group.end());
    }
    for (const auto& [name, n] : counts) {
        layout_ += concat(layout_.empty() ? "" : ", ", name, " x ", n);
    }
    std::vector<const Bound*> in_ram, on_device, streamed;
    std::vector<const ggml_tensor*> lacking;
    for (const Bound& bound : bound_) {
        if (repacked.contains(&bound)) {
            continue;
        }
        const bool taken = device_takes(bound);
        if (!taken) {
            lacking.push_back(bound.tensor);
        }
        const bool stream = streams() && bound.block != kNoBlock && taken;
        const bool in_host = bound.use == Use::look_up || !taken;
        if ((in_host || (backend_.is_cpu() && !stream)) && try_map(bound)) {
            memory_.mapped += ggml_nbytes(bound.tensor);
        } else if (in_host) {
            in_ram.push_back(&bound);
        } else if (stream) {
            streamed.push_back(&bound);
        } else {
            on_device.push_back(&bound);
        }
    }
    log_lacking(lacking);
    place(in_ram, backend_.cpu_buffer_type());
    if (pairs_as_columns_ && !streams()) {
        place_by_block(on_device);
    } else {
        place(on_device, backend_.buffer_type());
    }
    place_blocks(streamed);
    place_pairs();
    memory_.loading += rewriting_bytes();
}

// Where it does not, the tensor stays in RAM and the CPU computes with it.
bool Weights::device_takes(const Bound& bound) const {
    if (backend_.is_cpu() || bound.use == Use::look_up) {
        return true;
    }
    const bool stock = backend_.operations() == Operations::stock;
    return backend_.memory_for(bound.tensor) == backend_.buffer_type() &&
           (bound.use != Use::multiply || !stock || backend_.device().multiplies(bound.tensor));
}

void Weights::log_lacking(const std::vector<const ggml_tensor*>& tensors) const {
    if (tensors.empty() || backend_.measures_only()) {
        return;
    }
    const auto size = [](const ggml_tensor* a, const ggml_tensor* b) {
        return ggml_nbytes(a) < ggml_nbytes(b);
    };
    const ggml_tensor* largest = *std::max_element(tensors.begin(), tensors.end(), size);
    log(LogLevel::warning,
        concat(checkpoint_.file(), ": ", tensors.size(), " of its tensors, the largest ",
               ggml_nbytes(largest) / 1000, " kB of ", ggml_type_name(largest->type),
               ", stay in RAM and are computed with on the CPU: ", backend_.name(),
               " takes none of that size or type"));
}

void Weights::place_by_block(const std::vector<const Bound*>& group) {
    std::map<int, std::vector<const Bound*>> blocks;
    for (const Bound* bound : group) {
        blocks[bound->block].push_back(bound);
    }
    for (const auto& [block, bounds] : blocks) {
        place(bounds, backend_.buffer_type());
        block_buffers_[block] = std::move(buffers_.back());
        buffers_.pop_back();
    }
}

// Whether a multiply of ours reads the matrix where it lies, faster than any layout is multiplied.
bool Weights::suits_tiles(const Bound& bound) const {
    return backend_.is_cpu() && backend_.operations() == Operations::cpu &&
           bound.use == Use::multiply && cpu::suits_tiles(bound.tensor);
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
        if (bound.use != Use::multiply || suits_tiles(bound)) {
            continue;
        }
        const bool ours =
            backend_.operations() == Operations::cpu && cpu::suits_repacking(bound.tensor);
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
    buffers_.back().set_usage(GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const bool host = repacks || ggml_backend_buft_is_host(type);
    (host ? memory_.own.host : memory_.own.device) += buffers_.back().bytes;
    const bool in_one_go = repacks || backend_.device().abilities().is_far;
    const int n_threads = host || backend_.takes_parallel_writes() ? backend_.n_threads() : 1;
    memory_.loading = std::max(memory_.loading, loading_bytes(group, n_threads, in_one_go));
    if (backend_.measures_only()) {
        return;
    }
    parallel_for(group.size(), n_threads, [&](size_t i, size_t) {
        fill(*group[i], in_one_go);
        backend_.check_alive();
    });
}

// In RAM beside the tensors while so many threads fill them.
uint64_t Weights::loading_bytes(const std::vector<const Bound*>& group, int n_threads,
                                bool in_one_go) const {
    std::vector<uint64_t> parts, whole;
    for (const Bound* bound : group) {
        if (bound->rewritten || is_in_file(*bound)) {
            continue;
        }
        const auto n = static_cast<uint64_t>(
            std::min(elements_at_once(*bound), bound->source->shape.elements()));
        const auto type = static_cast<TensorType>(bound->tensor->type);
        parts.push_back(data_bytes(type, static_cast<int64_t>(n)) +
                        (is_of_file_type(*bound) ? 0 : n * sizeof(float)));
        if (in_one_go && !cpu::is_repacked(bound->tensor)) {
            whole.push_back(ggml_nbytes(bound->tensor));
        }
    }
    const auto n = static_cast<size_t>(n_threads);
    return sum_of_largest(parts, n) +
           std::min(sum_of_largest(whole, n), std::max(kWholeBytes, sum_of_largest(whole, 1)));
}

// Writes a tensor's values to its memory, then releases the file's pages.
void Weights::fill(const Bound& bound, bool in_one_go) const {
    std::vector<std::byte> whole;
    const size_t size = ggml_nbytes(bound.tensor);
    std::optional<ByteBudget::Share> share;
    if (in_one_go && !bound.rewritten && !is_in_file(bound) && !cpu::is_repacked(bound.tensor)) {
        share.emplace(whole_, size);
        whole.reserve(size);
    }
    const auto write = [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (cpu::is_repacked(bound.tensor)) {
            const size_t row = ggml_row_size(bound.tensor->type, bound.tensor->ne[0]);
            cpu::repack(bytes, static_cast<int64_t>(offset / row), bound.tensor);
        } else if (bound.n_columns > 0) {
            const size_t row = ggml_row_size(bound.tensor->type, bound.source->shape.ne[0]);
            ggml_backend_tensor_set_2d(bound.tensor, bytes.data(),
                                       offset / row * bound.tensor->nb[1], row, bytes.size() / row,
                                       bound.tensor->nb[1], row);
        } else {
            ggml_backend_tensor_set(bound.tensor, bytes.data(), offset, bytes.size());
        }
    };
    encode(bound, [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (share) {
            whole.insert(whole.end(), bytes.begin(), bytes.end());
        } else {
            write(offset, bytes);
        }
    });
    if (share) {
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
    memory_.loading = std::max(memory_.loading, loading_bytes(group, 1, /*in_one_go=*/false));
    for (size_t i = 0; i < group.size() && !backend_.measures_only(); ++i) {
        encode(*group[i], [&](uint64_t offset, std::span<const std::byte> bytes) {
            std::copy(bytes.begin(), bytes.end(), stream_->ram_of(i) + offset);
        });
    }
}

void Weights::enter_block(size_t i, std::optional<size_t> next) {
    if (stream_) {
        stream_->enter(i, next.value_or((i + 1) % stream_->n_blocks()));
    }
}

// Whether the file has the tensor's values in its type in memory.
bool Weights::is_of_file_type(const Bound& bound) const {
    return bound.source->same_type_throughout() &&
           bound.source->type() == static_cast<TensorType>(bound.tensor->type);
}

// Whether the tensor's bytes are in the file, one after another.
bool Weights::is_in_file(const Bound& bound) const {
    return is_of_file_type(bound) && bound.source->pieces.size() == 1;
}

// Values that are encoded at a time: whole rows where they must be, and as many as are repacked
// together.
int64_t Weights::elements_at_once(const Bound& bound) const {
    const bool is_repacked = cpu::is_repacked(bound.tensor);
    const bool by_row = is_repacked || is_quantized(static_cast<TensorType>(bound.tensor->type)) ||
                        is_quantized(bound.source->type()) || bound.n_columns > 0;
    const int64_t n_rows = is_repacked ? cpu::rows_together(bound.tensor) : 1;
    const int64_t together = by_row ? n_rows * bound.source->shape.ne[0] : 1;
    return std::max<int64_t>(kChunkElements / together, 1) * together;
}

// Points the tensor into the mapped file when the bytes there are already what it needs.
bool Weights::try_map(const Bound& bound) {
    const std::vector<Piece>& pieces = bound.source->pieces;
    if (bound.rewritten || pieces.size() != 1 ||
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

// Hands the tensor's bytes in its type in memory to `write`, a part at a time.
void Weights::encode(const Bound& bound, const Write& write) const {
    check(!backend_.cancel_requested(), ErrorKind::cancelled, "cancelled");
    if (bound.rewritten) {
        encode_rewritten(bound, write);
        return;
    }
    const auto type = static_cast<TensorType>(bound.tensor->type);
    const bool same = is_of_file_type(bound);
    if (is_in_file(bound)) {
        write(0, bound.source->pieces.front().bytes);
        return;
    }
    const int64_t n = bound.source->shape.elements();
    const int64_t step = elements_at_once(bound);
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
            if (is_quantized(type)) {
                check_finite(bound, values, first);
            }
            from_f32(type, values, is_quantized(type) ? bound.source->shape.ne[0] : taken, encoded);
        }
        write(data_bytes(type, first), encoded);
    }
}

uint64_t Weights::rewriting_bytes() const {
    constexpr uint64_t kCopies = 3;  // the tensor, and what adapters compute with
    std::vector<uint64_t> sizes;
    for (const Bound& bound : bound_) {
        if (bound.rewritten) {
            sizes.push_back(static_cast<uint64_t>(bound.source->shape.elements()) * sizeof(float));
        }
    }
    return kCopies * sum_of_largest(std::move(sizes), kRewrittenAtOnce);
}

void Weights::encode_rewritten(const Bound& bound, const Write& write) const {
    rewriting_.acquire();
    const std::unique_ptr<const Weights, void (*)(const Weights*)> released(
        this, [](const Weights* weights) { weights->rewriting_.release(); });
    std::vector<float> values(static_cast<size_t>(bound.source->shape.elements()));
    bound.source->read_f32(0, values);
    options_.adapters->apply(bound.source->name, values);
    const auto type = static_cast<TensorType>(bound.tensor->type);
    std::vector<std::byte> encoded(ggml_nbytes(bound.tensor));
    from_f32(type, values, bound.source->shape.ne[0], encoded);
    write(0, encoded);
}

// Throws bad_file unless all are; `first` is the number of the first value in its tensor.
void Weights::check_finite(const Bound& bound, std::span<const float> values, int64_t first) const {
    const size_t at = find_not_finite(values);
    if (at < values.size()) {
        fail(ErrorKind::bad_file, checkpoint_.file(), ": tensor ", bound.source->name, " holds ",
             values[at], " as value ", first + static_cast<int64_t>(at), ", which ",
             type_name(static_cast<TensorType>(bound.tensor->type)), " cannot; the file is broken");
    }
}

}  // namespace flux2
