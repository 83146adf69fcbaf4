#include "compute/backend.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "compute/remote.hpp"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

// ggml's own messages go where ours go; its reports of what it does are left out. Called by ggml
// from any of its threads, through which nothing may be thrown.
void pass_on(ggml_log_level level, const char* text, void*) noexcept {
    if (level != GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_WARN) {
        return;
    }
    try {
        std::string line = text;
        while (!line.empty() && line.back() == '\n') {
            line.pop_back();
        }
        log(level == GGML_LOG_LEVEL_ERROR ? LogLevel::error : LogLevel::warning, line);
    } catch (...) {
        // Lost: neither ggml nor whoever called it can do anything about a message.
    }
}

// Once for the whole process: ggml has one log for all, which others may have taken over since.
void take_ggml_log() {
    static std::once_flag taken;
    std::call_once(taken, [] { ggml_log_set(pass_on, nullptr); });
}

// Throws std::bad_alloc when the system does not give so many bytes: where malloc() fails, ggml
// ends the process.
void expect_memory(size_t bytes) {
    const std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
    *static_cast<volatile std::byte*>(memory.get()) = {};  // else compilers leave all of it out
}

// What ggml's scheduler of a graph allocates: each node may begin a part with copies of its own.
size_t scheduler_bytes(size_t max_nodes) {
    constexpr size_t kCopies = 2 * 30;  // of a part, GGML_SCHED_MAX_SPLIT_INPUTS in ggml
    constexpr size_t kTables = 4 * sizeof(int);
    constexpr size_t kHashed = 512;  // with what is allocated when the graph is placed
    return max_nodes * (kCopies * (sizeof(ggml_tensor) + kTables) + kHashed) +
           2 * ggml_graph_overhead_custom(max_nodes, false);
}

// Without those that were lost.
std::vector<ggml_backend_dev_t> all_devices() {
    take_ggml_log();
    std::vector<ggml_backend_dev_t> devices;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        if (!why_lost(ggml_backend_dev_get(i))) {
            devices.push_back(ggml_backend_dev_get(i));
        }
    }
    return devices;
}

bool is_gpu(ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

bool same_name(const std::string& a, const std::string& b) {
    return to_lower(a) == to_lower(b);
}

ggml_backend_dev_t choose(const std::string& name) {
    const auto devices = all_devices();
    if (same_name(name, "auto")) {
        const auto is_chosen = [](ggml_backend_dev_t device) {
            return is_gpu(device) && !names_software_device(ggml_backend_dev_description(device));
        };
        const auto local = std::find_if(devices.begin(), devices.end(), [&](auto device) {
            return is_chosen(device) && !is_remote(device);
        });
        const auto gpu = local != devices.end()
                             ? local
                             : std::find_if(devices.begin(), devices.end(), is_chosen);
        return gpu != devices.end() ? *gpu : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }
    std::string known;
    for (const ggml_backend_dev_t device : devices) {
        if (same_name(name, ggml_backend_dev_name(device))) {
            return device;
        }
        known += (known.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(device));
    }
    fail(ErrorKind::bad_argument, "there is no device ", name, "; this machine and build have ",
         known, " (and auto)");
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
    std::vector<DeviceInfo> result;
    for (const ggml_backend_dev_t device : all_devices()) {
        const DeviceMemory memory = memory_of(device);
        const std::string description = ggml_backend_dev_description(device);
        result.push_back({.name = ggml_backend_dev_name(device),
                          .description = description,
                          .free_bytes = memory.free,
                          .total_bytes = memory.total,
                          .is_software = is_gpu(device) && names_software_device(description)});
    }
    return result;
}

void TensorBuffer::set_usage(ggml_backend_buffer_usage usage) const {
    for (const ggml_backend_buffer_ptr& buffer : buffers) {
        ggml_backend_buffer_set_usage(buffer.get(), usage);
    }
}

std::string device_name(const std::string& device) {
    return ggml_backend_dev_name(choose(device));
}

Backend::Backend(const std::string& device, int n_threads, BackendUse use)
    : use_(use),
      n_threads_(n_threads > 0 ? n_threads : physical_cores()),
      device_(open_device(choose(device))),
      operations_(device_->abilities().operations) {
    name_ = device_->name();
    if (!is_cpu()) {
        accelerator_ = device_->start();
        check_alive();
    }
    cpu_ = open_device(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU))->start();
    ggml_backend_cpu_set_n_threads(cpu_.get(), n_threads_);
}

ggml_backend_buffer_type_t Backend::repack_buffer_type(const ggml_tensor* matrix) const {
    const auto types = device_->repack_buffer_types(matrix);
    return types.empty() ? nullptr : types.front();
}

ggml_backend_buffer_type_t Backend::buffer_type() const {
    return ggml_backend_get_default_buffer_type(accelerator_ ? accelerator_.get() : cpu_.get());
}

ggml_backend_buffer_type_t Backend::cpu_buffer_type() const {
    return ggml_backend_get_default_buffer_type(cpu_.get());
}

ggml_backend_buffer_type_t Backend::memory_for(const ggml_tensor* tensor) const {
    return is_cpu() || device_->takes(ggml_nbytes(tensor)) ? buffer_type() : cpu_buffer_type();
}

ggml_backend_buffer_type_t Backend::upload_buffer_type() const {
    const ggml_backend_buffer_type_t type =
        accelerator_
            ? ggml_backend_dev_host_buffer_type(ggml_backend_get_device(accelerator_.get()))
            : nullptr;
    return type != nullptr ? type : cpu_buffer_type();
}

TensorBuffer Backend::allocate(std::span<ggml_tensor* const> tensors,
                               ggml_backend_buffer_type_t type, const std::string& what) const {
    const size_t alignment = ggml_backend_buft_get_alignment(type);
    const size_t most = measures_only() ? SIZE_MAX : ggml_backend_buft_get_max_size(type);
    struct Place {
        size_t buffer, offset;
    };
    std::vector<Place> places;
    std::vector<size_t> sizes = {0};  // of buffers
    TensorBuffer result;
    for (const ggml_tensor* tensor : tensors) {
        const size_t bytes = GGML_PAD(ggml_backend_buft_get_alloc_size(type, tensor), alignment);
        if (sizes.back() > 0 && bytes > most - std::min(most, sizes.back())) {
            sizes.push_back(0);
        }
        places.push_back({sizes.size() - 1, sizes.back()});
        sizes.back() += bytes;
        result.bytes += bytes;
    }
    result.buffers.reserve(sizes.size());  // a buffer is owned as soon as it is there
    for (const size_t size : sizes) {
        // On a CPU a little is allocated even for measuring: ggml marks tensors of a real buffer
        // with how they are multiplied, and the work space of a graph depends on that.
        const size_t allocated = !measures_only() ? size : is_cpu() ? alignment : 0;
        result.buffers.emplace_back(ggml_backend_buft_alloc_buffer(type, allocated));
        check_alive();
        check(result.buffers.back() != nullptr, ErrorKind::out_of_memory, what, " takes ",
              result.bytes / 1000000, " MB, which do not fit into the memory of ",
              ggml_backend_buft_name(type), "; use a smaller ", Setting::type,
              " or a smaller picture");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
        const ggml_backend_buffer_t buffer = result.buffers[places[i].buffer].get();
        if (measures_only()) {
            tensors[i]->buffer = buffer;  // tells schedulers where it would lie
            ggml_backend_buffer_init_tensor(buffer, tensors[i]);
            continue;
        }
        auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
        check(ggml_backend_tensor_alloc(buffer, tensors[i], base + places[i].offset) ==
                  GGML_STATUS_SUCCESS,
              ErrorKind::backend, what, " could not be placed on ", name_);
    }
    return result;
}

ggml_backend_sched_ptr Backend::make_scheduler(size_t max_nodes) const {
    std::vector<ggml_backend_t> backends;
    if (accelerator_) {
        backends.push_back(accelerator_.get());
    }
    backends.push_back(cpu_.get());
    expect_memory(scheduler_bytes(max_nodes));
    return ggml_backend_sched_ptr(ggml_backend_sched_new(
        backends.data(), nullptr, static_cast<int>(backends.size()), max_nodes, /*parallel=*/false,
        /*op_offload=*/true));
}

ggml_backend_ptr Backend::make_upload_queue() const {
    return device_->start_queue();
}

void Backend::set_cancel(const std::atomic<bool>* flag) {
    cancel_ = flag;
    ggml_backend_cpu_set_abort_callback(
        cpu_.get(),
        [](void* data) { return data != nullptr && *static_cast<const std::atomic<bool>*>(data); },
        const_cast<std::atomic<bool>*>(flag));
}

void Backend::set_on_progress(std::function<void(double share)> on_progress) {
    on_progress_ = std::move(on_progress);
}

void Backend::set_on_operation(OnOperation on_operation) {
    on_operation_ = std::move(on_operation);
}

}  // namespace flux2
