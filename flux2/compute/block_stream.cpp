#include "compute/block_stream.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace flux2 {
namespace {

constexpr uint64_t kRamAlignment = 64;

}  // namespace

BlockStream::BlockStream(const Backend& backend, std::string file)
    : backend_(backend), file_(std::move(file)) {}

void BlockStream::add(size_t block, ggml_tensor* tensor) {
    check(block + 1 >= n_blocks_, ErrorKind::internal, "blocks are added in order");
    if (block + 1 > n_blocks_) {
        n_blocks_ = block + 1;
        buffer_ = 0;
        offset_ = 0;
    }
    const ggml_backend_buffer_type_t type = backend_.buffer_type();
    const uint64_t bytes = GGML_PAD(ggml_backend_buft_get_alloc_size(type, tensor),
                                    ggml_backend_buft_get_alignment(type));
    const uint64_t most = ggml_backend_buft_get_max_size(type);
    if (offset_ > 0 && bytes > most - std::min(most, offset_)) {
        ++buffer_;
        offset_ = 0;
    }
    entries_.push_back({block, tensor, ram_bytes_, buffer_, offset_});
    ram_bytes_ += GGML_PAD(ggml_nbytes(tensor), kRamAlignment);
    offset_ += bytes;
    std::vector<uint64_t>& slot = slot_bytes_[block % kSlots];
    slot.resize(std::max(slot.size(), buffer_ + 1));
    slot[buffer_] = std::max(slot[buffer_], offset_);
}

uint64_t BlockStream::device_bytes() const {
    uint64_t sum = 0;
    for (const std::vector<uint64_t>& slot : slot_bytes_) {
        sum = std::accumulate(slot.begin(), slot.end(), sum);
    }
    return sum;
}

void BlockStream::allocate() {
    const uint64_t on_device = device_bytes();
    memory_ =
        backend_.is_cpu() ? MemoryUse{0, on_device + ram_bytes_} : MemoryUse{on_device, ram_bytes_};
    for (size_t slot = 0; slot < kSlots; ++slot) {
        allocate_slot(slot);
    }
    if (backend_.measures_only()) {
        return;
    }
    ram_.reset(ggml_backend_buft_alloc_buffer(backend_.upload_buffer_type(), ram_bytes_));
    check(ram_ != nullptr, ErrorKind::out_of_memory, file_, ": ", ram_bytes_ / 1000000,
          " MB of weights do not fit into RAM; use a smaller ", Setting::type);
    queue_ = backend_.make_upload_queue();
}

// Memory on the device in which the tensors of every second block overlap.
void BlockStream::allocate_slot(size_t slot) {
    slots_[slot].reserve(slot_bytes_[slot].size());  // a buffer is owned as soon as it is there
    for (const uint64_t bytes : slot_bytes_[slot]) {
        const auto& buffer = slots_[slot].emplace_back(ggml_backend_buft_alloc_buffer(
            backend_.buffer_type(), backend_.measures_only() ? 0 : bytes));
        check(buffer != nullptr, ErrorKind::out_of_memory, file_, ": two of its blocks take ",
              device_bytes() / 1000000, " MB, which do not fit into the memory of ",
              backend_.name());
        ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    for (const Entry& entry : entries_) {
        if (entry.block % kSlots != slot) {
            continue;
        }
        const ggml_backend_buffer_t buffer = slots_[slot][entry.buffer].get();
        if (backend_.measures_only()) {
            entry.tensor->buffer = buffer;  // tells schedulers where it would lie
            continue;
        }
        auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
        check(ggml_backend_tensor_alloc(buffer, entry.tensor, base + entry.offset) ==
                  GGML_STATUS_SUCCESS,
              ErrorKind::backend, file_, ": a block could not be placed on ", backend_.name());
    }
}

std::byte* BlockStream::ram_of(size_t i) const {
    return static_cast<std::byte*>(ggml_backend_buffer_get_base(ram_.get())) +
           entries_[i].ram_offset;
}

void BlockStream::enter(size_t i, size_t next) {
    upload(i);  // nothing to do unless it is the very first, or the one before has the same place
    ggml_backend_synchronize(queue_.get());
    if (next % kSlots != i % kSlots) {
        upload(next);
    }
}

void BlockStream::upload(size_t block) {
    std::optional<size_t>& in_slot = in_slot_[block % kSlots];
    if (in_slot == block) {
        return;
    }
    for (size_t i = 0; i < entries_.size(); ++i) {
        if (entries_[i].block == block) {
            ggml_backend_tensor_set_async(queue_.get(), entries_[i].tensor, ram_of(i), 0,
                                          ggml_nbytes(entries_[i].tensor));
        }
    }
    in_slot = block;
}

}  // namespace flux2
