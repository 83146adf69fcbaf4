#include "cuda/imitation.hpp"

#include "compute/cuda/attention.hpp"
#include "compute/cuda/kernel_image.hpp"
#include "compute/cuda/kernel_table.hpp"
#include "compute/cuda/large_products.hpp"

#include <ggml-backend-impl.h>

#include <deque>
#include <new>
#include <utility>

namespace flux2::test {
namespace {

ImitatedCuda* current = nullptr;

bool succeeds(const char* function) {
    return current->fails != function;
}

cudaError_t status_of(const char* function) {
    if (!succeeds(function)) {
        current->last_error = cudaErrorMemoryAllocation;
        return cudaErrorMemoryAllocation;
    }
    return cudaSuccess;
}

// Makes what `count` counts, an address that is nothing else's.
template <typename Made>
cudaError_t make(const char* function, std::atomic<int>& count, Made** made) {
    if (succeeds(function)) {
        *made = reinterpret_cast<Made*>(new char);
        ++count;
    }
    return status_of(function);
}

template <typename Made>
void release(std::atomic<int>& count, Made* made) {
    delete reinterpret_cast<char*>(made);
    --count;
}

}  // namespace

ImitatedCuda::ImitatedCuda() {
    current = this;
}

ImitatedCuda::~ImitatedCuda() {
    current = nullptr;
}

ggml_backend_dev_t new_device() {
    static std::deque<ggml_backend_device> devices;
    ggml_backend_device device = {};
    device.iface.get_name = [](ggml_backend_dev_t) { return "CUDA0"; };
    device.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props* props) {
        props->device_id = "0000:01:00.0";
    };
    device.iface.event_new = [](ggml_backend_dev_t d) -> ggml_backend_event_t {
        if (!succeeds("event_new")) {
            return nullptr;
        }
        ++current->n_events;
        return new ggml_backend_event{.device = d, .context = nullptr};
    };
    device.iface.event_free = [](ggml_backend_dev_t, ggml_backend_event_t event) {
        delete event;
        --current->n_events;
    };
    return &devices.emplace_back(device);
}

ggml_backend_ptr start(ggml_backend_dev_t device) {
    auto* backend = new ggml_backend{};
    backend->device = device;
    backend->iface.get_name = [](ggml_backend_t) { return "CUDA0"; };
    backend->iface.free = [](ggml_backend_t b) {
        delete b;
        --current->n_backends;
    };
    backend->iface.graph_compute = [](ggml_backend_t, ggml_cgraph*) {
        if (current->pool_is_full) {
            throw std::bad_alloc();
        }
        return current->theirs;
    };
    backend->iface.event_record = [](ggml_backend_t, ggml_backend_event_t) {};
    backend->iface.event_wait = [](ggml_backend_t, ggml_backend_event_t) {
        ++current->n_their_waits;
    };
    ++current->n_backends;
    return ggml_backend_ptr(backend);
}

}  // namespace flux2::test

using flux2::test::current;

namespace flux2::cuda {
namespace {

void kernel() {}
void hopper_kernel() {}

}  // namespace
}  // namespace flux2::cuda

// ---- CUDA ----

const char* cudaGetErrorString(cudaError_t) {
    return "out of memory";
}
cudaError_t cudaGetLastError() {
    return std::exchange(current->last_error, cudaSuccess);
}
cudaError_t cudaSetDevice(int) {
    return flux2::test::status_of("cudaSetDevice");
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char*) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? current->capability / 10
                                                            : current->capability % 10;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return flux2::test::make("cudaStreamCreateWithFlags", current->n_streams, stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    flux2::test::release(current->n_streams, stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    ++current->n_stream_waits;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    ++current->n_our_waits;
    return flux2::test::status_of("cudaStreamWaitEvent");
}
cudaError_t cudaEventQuery(cudaEvent_t) {
    return flux2::test::status_of("cudaEventQuery");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
    return flux2::test::status_of("cudaEventRecord");
}
cudaError_t cudaMalloc(void** memory, size_t) {
    return flux2::test::make("cudaMalloc", current->n_memory, memory);
}
cudaError_t cudaFree(void* memory) {
    flux2::test::release(current->n_memory, memory);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    using flux2::cuda::hopper_kernel;
    if (kernel == reinterpret_cast<const void*>(hopper_kernel) && !current->has_hopper_image) {
        current->last_error = cudaErrorNoKernelImageForDevice;
        return current->last_error;
    }
    attributes->ptxVersion = current->capability;
    return cudaSuccess;
}

// ---- cuBLAS ----

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    return flux2::test::make("cublasCreate", current->n_handles, handle) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    flux2::test::release(current->n_handles, handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
    return flux2::test::succeeds("cublasSetStream") ? CUBLAS_STATUS_SUCCESS
                                                    : CUBLAS_STATUS_ALLOC_FAILED;
}

// ---- Our kernels ----

namespace flux2::cuda {

Launch find_kernel(const ggml_tensor* node) {
    if (node->op != GGML_OP_SQR) {
        return nullptr;
    }
    return [](const Context& context, const ggml_tensor*) {
        ++current->n_launched;
        current->launched_for_hopper = context.hopper;
        // As every launcher of ours ends: with the last error, whoever left it behind.
        const cudaError_t status = flux2::test::status_of("a kernel");
        const cudaError_t last = cudaGetLastError();
        return status != cudaSuccess ? status : last;
    };
}

Launch find_kernel_of_both(const ggml_tensor*, const ggml_tensor*) {
    return nullptr;
}

bool has_hopper_attention() {
    return image_architecture(hopper_kernel) != 0;
}

int attention_architecture() {
    return image_architecture(kernel);
}

class LargeProducts::Choice {};

LargeProducts::LargeProducts(cublasHandle_t, cudaStream_t stream)
    : blas_(nullptr), stream_(stream) {}

LargeProducts::~LargeProducts() = default;

}  // namespace flux2::cuda
