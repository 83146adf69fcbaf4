#include "compute/backend.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#if defined(FLUX2_KERNELS)
#include "compute/cuda/backend.hpp"
#endif

#include <ggml-cpu.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

// ggml's own messages go where ours go; its chatter about what it does is left out. Called by ggml
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

std::vector<ggml_backend_dev_t> all_devices() {
    take_ggml_log();
    std::vector<ggml_backend_dev_t> devices;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        devices.push_back(ggml_backend_dev_get(i));
    }
    return devices;
}

bool is_gpu(ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

bool is_cuda(ggml_backend_dev_t device) {
    return std::string(ggml_backend_reg_name(ggml_backend_dev_backend_reg(device))) == "CUDA";
}

bool same_name(const std::string& a, const std::string& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
        return std::tolower(x) == std::tolower(y);
    });
}

ggml_backend_dev_t choose(const std::string& name) {
    const auto devices = all_devices();
    if (same_name(name, "auto")) {
        const auto gpu = std::find_if(devices.begin(), devices.end(), is_gpu);
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

ggml_backend_ptr start(ggml_backend_dev_t device) {
    ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
    check(backend != nullptr, ErrorKind::backend, "the device ", ggml_backend_dev_name(device),
          " could not be started; check its driver, or use --device CPU");
    return backend;
}

// ggml's buffer types that lay matrices out anew for this CPU.
std::vector<ggml_backend_buffer_type_t> find_repack_types(ggml_backend_dev_t cpu) {
    const auto get_extra =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    std::vector<ggml_backend_buffer_type_t> types;
    ggml_backend_buffer_type_t* type = get_extra != nullptr ? get_extra(cpu) : nullptr;
    for (; type != nullptr && *type != nullptr; ++type) {
        types.push_back(*type);
    }
    return types;
}

// ggml tells whether it can multiply by a whole multiply, whose weight lies in such memory.
bool multiplies_from(ggml_backend_dev_t cpu, ggml_backend_buffer_type_t type,
                     const ggml_tensor* matrix) {
    constexpr size_t kTensors = 4;
    constexpr int64_t kColumns = 64;
    const ggml_context_ptr context(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    const ggml_backend_buffer_ptr nothing(ggml_backend_buft_alloc_buffer(type, 0));
    ggml_tensor* w = ggml_dup_tensor(context.get(), matrix);
    w->buffer = nothing.get();
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, w->ne[0], kColumns);
    return ggml_backend_dev_supports_op(cpu, ggml_mul_mat(context.get(), w, x));
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
    std::vector<DeviceInfo> result;
    for (const ggml_backend_dev_t device : all_devices()) {
        size_t free = 0;
        size_t total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        result.push_back(
            {ggml_backend_dev_name(device), ggml_backend_dev_description(device), free, total});
    }
    return result;
}

Backend::Backend(const std::string& device, int n_threads, BackendUse use) : use_(use) {
    const ggml_backend_dev_t chosen = choose(device);
    name_ = ggml_backend_dev_name(chosen);
    if (ggml_backend_dev_type(chosen) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        device_ = start(chosen);
#if defined(FLUX2_KERNELS)
        if (cuda::runs_on(chosen)) {
            device_ = cuda::extend(std::move(device_));
            operations_ = Operations::cuda;
        }
#endif
    }
    cpu_ = start(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    n_threads_ = n_threads > 0 ? n_threads : physical_cores();
    ggml_backend_cpu_set_n_threads(cpu_.get(), n_threads_);
    if (is_cpu()) {
        operations_ = Operations::cpu;
        repack_ = find_repack_types(ggml_backend_get_device(cpu_.get()));
    }
}

std::vector<ggml_backend_buffer_type_t> Backend::repack_buffer_types(
    const ggml_tensor* matrix) const {
    const ggml_backend_dev_t cpu = ggml_backend_get_device(cpu_.get());
    std::vector<ggml_backend_buffer_type_t> types;
    std::copy_if(repack_.begin(), repack_.end(), std::back_inserter(types),
                 [&](auto type) { return multiplies_from(cpu, type, matrix); });
    return types;
}

ggml_backend_buffer_type_t Backend::repack_buffer_type(const ggml_tensor* matrix) const {
    const auto types = repack_buffer_types(matrix);
    return types.empty() ? nullptr : types.front();
}

bool Backend::multiplies_bf16() const {
    return !is_cpu() || ggml_cpu_has_avx2() != 0;
}

// ggml's CUDA copies on a stream of the calling thread; of the others nothing is known.
bool Backend::takes_parallel_writes() const {
    return is_cpu() || is_cuda(ggml_backend_get_device(device_.get()));
}

ggml_backend_buffer_type_t Backend::buffer_type() const {
    return ggml_backend_get_default_buffer_type(device_ ? device_.get() : cpu_.get());
}

ggml_backend_buffer_type_t Backend::cpu_buffer_type() const {
    return ggml_backend_get_default_buffer_type(cpu_.get());
}

ggml_backend_buffer_type_t Backend::upload_buffer_type() const {
    const ggml_backend_buffer_type_t type =
        device_ ? ggml_backend_dev_host_buffer_type(ggml_backend_get_device(device_.get()))
                : nullptr;
    return type != nullptr ? type : cpu_buffer_type();
}

TensorBuffer Backend::allocate(std::span<ggml_tensor* const> tensors,
                               ggml_backend_buffer_type_t type, const std::string& what) const {
    const size_t alignment = ggml_backend_buft_get_alignment(type);
    std::vector<size_t> offsets;
    size_t bytes = 0;
    for (const ggml_tensor* tensor : tensors) {
        offsets.push_back(bytes);
        bytes += GGML_PAD(ggml_backend_buft_get_alloc_size(type, tensor), alignment);
    }
    TensorBuffer result;
    result.bytes = bytes;
    // On a CPU a little is allocated even so: ggml marks tensors of a real buffer with how they are
    // multiplied, and the work space of a graph depends on that.
    const size_t allocated = !measures_only() ? bytes : is_cpu() ? alignment : 0;
    result.buffer.reset(ggml_backend_buft_alloc_buffer(type, allocated));
    check(result.buffer != nullptr, ErrorKind::out_of_memory, what, " takes ", bytes / 1000000,
          " MB, which do not fit into the memory of ", ggml_backend_buft_name(type),
          "; use a smaller --type or a smaller picture");
    auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(result.buffer.get()));
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (measures_only()) {
            tensors[i]->buffer = result.buffer.get();  // tells schedulers where it would lie
            ggml_backend_buffer_init_tensor(result.buffer.get(), tensors[i]);
        } else {
            check(ggml_backend_tensor_alloc(result.buffer.get(), tensors[i], base + offsets[i]) ==
                      GGML_STATUS_SUCCESS,
                  ErrorKind::backend, what, " could not be placed on ", name_);
        }
    }
    return result;
}

ggml_backend_sched_ptr Backend::make_scheduler(size_t max_nodes) const {
    std::vector<ggml_backend_t> backends;
    if (device_) {
        backends.push_back(device_.get());
    }
    backends.push_back(cpu_.get());
    return ggml_backend_sched_ptr(ggml_backend_sched_new(
        backends.data(), nullptr, static_cast<int>(backends.size()), max_nodes, /*parallel=*/false,
        /*op_offload=*/true));
}

ggml_backend_ptr Backend::make_upload_queue() const {
    return start(ggml_backend_get_device(device_ ? device_.get() : cpu_.get()));
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
