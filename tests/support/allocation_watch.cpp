// Counts and limits what the whole binary allocates. A file of its own: inlined into other code the
// replacements below confuse the compiler's warnings.
#include "support/support.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

std::atomic<size_t> largest_allocation = 0;
std::atomic<size_t> allocation_limit = kNoLimit;
std::atomic<flux2::test::AllocationHook*> hook = nullptr;
thread_local bool in_hook = false;

}  // namespace

// The whole binary allocates through these, so that a test can see how much was requested.
void* operator new(size_t size) {
    size_t known = largest_allocation.load();
    while (size > known && !largest_allocation.compare_exchange_weak(known, size)) {
    }
    if (flux2::test::AllocationHook* asked = hook.load(); asked != nullptr && !in_hook) {
        asked->pass(size);
    }
    void* memory = size <= allocation_limit ? std::malloc(std::max<size_t>(size, 1)) : nullptr;
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
// The sanitizers' own forms of these would not go through the form above, as the standard has it.
void* operator new[](size_t size) {
    return operator new(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
    try {
        return operator new(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
    std::free(memory);
}

namespace flux2::test {

AllocationWatch::AllocationWatch() {
    largest_allocation = 0;
}

size_t AllocationWatch::largest() const {
    return largest_allocation;
}

AllocationHook::AllocationHook(size_t least_bytes, size_t most_bytes,
                               std::function<void(size_t n)> function)
    : least_bytes_(least_bytes), most_bytes_(most_bytes), function_(std::move(function)) {
    hook = this;
}

AllocationHook::~AllocationHook() {
    hook = nullptr;
}

void AllocationHook::pass(size_t bytes) {
    if (bytes < least_bytes_ || bytes > most_bytes_) {
        return;
    }
    in_hook = true;
    try {
        function_(n_++);
    } catch (...) {
        in_hook = false;
        throw;
    }
    in_hook = false;
}

AllocationLimit::AllocationLimit(size_t bytes) {
    allocation_limit = bytes;
}

AllocationLimit::~AllocationLimit() {
    allocation_limit = kNoLimit;
}

}  // namespace flux2::test
