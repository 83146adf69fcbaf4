// Weights that are too large for a device: their blocks stay in RAM and are copied in turn to two
// slots on the device, the next one while one is computed.
#pragma once

#include "compute/backend.hpp"

#include <ggml-cpp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

class BlockStream {
  public:
    // Borrows the backend. `file` is named in errors.
    BlockStream(const Backend& backend, std::string file);

    void add(size_t block, ggml_tensor* tensor);
    // Places everything that was added. Throws out_of_memory.
    void allocate();
    // Where the bytes of the i-th tensor that was added are to be put. Not for measuring backends.
    std::byte* ram_of(size_t i) const;

    // Makes block i ready to compute and starts copying `next`, which is computed after it. The
    // block before it must have been computed.
    void enter(size_t i, size_t next);
    size_t n_blocks() const { return n_blocks_; }

    // Two blocks on the device, all of them in RAM.
    const MemoryUse& memory() const { return memory_; }

  private:
    static constexpr size_t kSlots = 2;

    struct Entry {
        size_t block;
        ggml_tensor* tensor;
        uint64_t ram_offset;
        size_t buffer;  // of its slot
        uint64_t offset;
    };

    uint64_t device_bytes() const;
    void upload(size_t block);
    void allocate_slot(size_t slot);

    const Backend& backend_;
    std::string file_;
    std::vector<Entry> entries_;
    size_t n_blocks_ = 0;
    // Of the block that is being added: where its next tensor goes.
    size_t buffer_ = 0;
    uint64_t offset_ = 0;
    uint64_t ram_bytes_ = 0;
    // Of the buffers of each slot: several where one cannot be that large.
    std::array<std::vector<uint64_t>, kSlots> slot_bytes_;
    MemoryUse memory_;
    ggml_backend_buffer_ptr ram_;
    std::array<std::vector<ggml_backend_buffer_ptr>, kSlots> slots_;
    ggml_backend_ptr queue_;
    std::array<std::optional<size_t>, kSlots> in_slot_;  // which block lies there
};

}  // namespace flux2
